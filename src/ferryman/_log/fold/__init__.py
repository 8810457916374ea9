"""From deltas to state: folding, advancing main copies, snapshots, and forgetting what no epoch needs."""
