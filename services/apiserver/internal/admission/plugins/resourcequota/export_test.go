package resourcequota

// Waiting returns the number of claims that wait for the worker of a namespace.
func (p *Plugin) Waiting(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.batchers[namespace]; l != nil {
		return len(l.waiting)
	}
	return 0
}

// Working reports whether a worker runs for the namespace.
func (p *Plugin) Working(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batchers[namespace] != nil
}
