package encryption

// Covers is covers, for tests.
func (s *Set) Covers(other *Set) bool { return s.covers(other) }
