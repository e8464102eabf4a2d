package rules

// Shared returns the number of programs that are in use.
func (c *Compiler) Shared() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, shared := range c.shared {
		if shared.Value() != nil {
			count++
		}
	}
	return count
}
