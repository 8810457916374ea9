"""From a key's hash to an instance: key groups, routing tables, tokens. Pure; calls only `_model`."""
