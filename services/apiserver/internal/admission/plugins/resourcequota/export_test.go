package resourcequota

// Waiting is how many jobs wait in a lane.
func (p *Plugin) Waiting(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lanes[namespace]; l != nil {
		return len(l.waiting)
	}
	return 0
}

// Working tells whether a lane is worked.
func (p *Plugin) Working(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lanes[namespace] != nil
}
