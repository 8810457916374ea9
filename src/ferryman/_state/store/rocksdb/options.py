"""How RocksDB is opened: with little memory, however large the state is.

All databases of a process share one block cache, which also holds indexes and filters, and one budget for
what is not yet in a table file. Calls rocksdict.
"""

from __future__ import annotations

import functools

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

# What one process may keep in memory, and what one database may before it goes to a file.
CACHE_BYTES = 64 << 20
MEMTABLES_BYTES = 32 << 20
MEMTABLE_BYTES = 8 << 20
# How much is written at once; more would go into one memtable, whatever that may hold.
BATCH_BYTES = 4 << 20
# Small files make small compactions, which are done before the next process asks for the database.
TABLE_BYTES = 16 << 20
OPEN_TABLES = 64

_FILTER_BITS_PER_KEY = 10
# Every change of hands leaves one more file on level 0. Filters make a lookup pass by them quickly, and a
# compaction after every few would write the level below again and again.
_LEVEL_0_COMPACT, _LEVEL_0_SLOW, _LEVEL_0_STOP = 8, 24, 40


@functools.cache
def options() -> Options:
    """Give the options that all databases of this process share, and the memory with them."""
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(CACHE_BYTES))
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_bloom_filter(_FILTER_BITS_PER_KEY, False)
    tables.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(True)
    chosen.set_block_based_table_factory(tables)
    chosen.set_write_buffer_manager(WriteBufferManager(MEMTABLES_BYTES, False))
    chosen.set_write_buffer_size(MEMTABLE_BYTES)
    chosen.set_max_total_wal_size(2 * MEMTABLE_BYTES)
    chosen.set_compression_type(DBCompressionType.lz4())
    chosen.set_target_file_size_base(TABLE_BYTES)
    chosen.set_max_bytes_for_level_base(4 * TABLE_BYTES)
    chosen.set_level_zero_file_num_compaction_trigger(_LEVEL_0_COMPACT)
    chosen.set_level_zero_slowdown_writes_trigger(_LEVEL_0_SLOW)
    chosen.set_level_zero_stop_writes_trigger(_LEVEL_0_STOP)
    chosen.set_max_open_files(OPEN_TABLES)
    # What follows only makes opening quicker and leaves less behind.
    chosen.set_skip_stats_update_on_db_open(True)
    chosen.set_max_file_opening_threads(1)
    chosen.set_manifest_preallocation_size(64 << 10)
    chosen.set_stats_dump_period_sec(0)
    chosen.set_stats_persist_period_sec(0)
    chosen.set_keep_log_file_num(1)
    chosen.set_max_log_file_size(1 << 20)
    return chosen
