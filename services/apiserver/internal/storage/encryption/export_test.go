package encryption

import "context"

// Covers exports canDecryptAll for tests.
func (s *Set) Covers(other *Set) bool { return s.canDecryptAll(other) }

// Changed exports applyContent for tests.
func (l *Live) Changed(ctx context.Context, data []byte, err error) (done bool) {
	return l.applyContent(ctx, data, err)
}
