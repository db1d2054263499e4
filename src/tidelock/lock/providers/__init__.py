"""Lock backends, a file each, behind `tidelock.lock.provider.LockProvider`."""
