package rules

// Shared returns the number of programs that are in use.
func (c *Compiler) Shared() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, w := range c.shared {
		if w.Value() != nil {
			n++
		}
	}
	return n
}
