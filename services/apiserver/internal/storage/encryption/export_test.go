package encryption

import "context"

// Covers is covers, for tests.
func (s *Set) Covers(other *Set) bool { return s.covers(other) }

// Changed is changed, for tests.
func (l *Live) Changed(ctx context.Context, data []byte, err error) (done bool) {
	return l.changed(ctx, data, err)
}
