"""The operating system: processes, disks, directories of one user, and where a test can ask for a kill."""
