package resourcequota

// Waiting returns the number of jobs in the queue of a namespace.
func (p *Plugin) Waiting(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.batchers[namespace]; b != nil {
		return len(b.queue)
	}
	return 0
}

// Working reports whether a batcher exists for a namespace, so that a goroutine runs its jobs.
func (p *Plugin) Working(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batchers[namespace] != nil
}
