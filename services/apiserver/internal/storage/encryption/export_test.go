package encryption

import "context"

// Covers exports covers for tests.
func (s *Set) Covers(other *Set) bool { return s.canDecryptAll(other) }

// Changed exports changed for tests.
func (l *Live) Changed(ctx context.Context, data []byte, err error) (done bool) {
	return l.applyContent(ctx, data, err)
}
