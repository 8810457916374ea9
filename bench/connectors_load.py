"""Send rows to a topic, each when it is due, and see when what comes of it can be read: a process of its own.

    python -m bench.connectors_load SERVERS FROM TO RATE WARM SECONDS

It prints the latencies, in milliseconds, of the rows that were sent after the first WARM seconds.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time

from confluent_kafka import Producer, TopicPartition

from bench.connectors_kafka import PARTITIONS, consumer_of

KEYS = 20_000
# How long rows that were sent at the end may take.
_AFTER_S = 4.0


def send(servers: str, topic: str, rate: float, seconds: float) -> None:
    producer, chance = Producer({"bootstrap.servers": servers, "linger.ms": "1"}), random.Random(1)
    start, sent = time.time(), 0
    while time.time() - start < seconds:
        due = int((time.time() - start) * rate)
        for number in range(sent, due):
            # From when it is due: a sender that is late is no excuse.
            value = f'{{"sent": {round((start + number / rate) * 1000)}}}'
            producer.produce(topic, key=f"k-{chance.randrange(KEYS)}", value=value)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(30)


def main(servers: str, source: str, target: str, rate: str, warm: str, seconds: str) -> None:
    start, whole_s = time.time(), float(warm) + float(seconds)
    sender = threading.Thread(target=send, args=(servers, source, float(rate), whole_s))
    reader = consumer_of(servers)
    reader.assign([TopicPartition(target, part, 0) for part in range(PARTITIONS)])
    sender.start()
    latencies = []
    while time.time() - start < whole_s + _AFTER_S:
        for record in reader.consume(1000, timeout=0.01):
            now_ms = time.time() * 1000
            if record.error() is None:
                sent_ms = json.loads(record.value())["sent"]
                if sent_ms >= (start + float(warm)) * 1000:
                    latencies.append(round(now_ms - sent_ms, 1))
    sender.join()
    reader.close()
    print(json.dumps(latencies))


if __name__ == "__main__":
    main(*sys.argv[1:])
