package imagepolicy

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

// TestOnlyBrokenConnectionsAreRetried checks that a request is retried if its connection broke.
func TestOnlyBrokenConnectionsAreRetried(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("read: %w", syscall.ECONNRESET):   true,
		errors.New("http2: client connection lost"):  true,
		fmt.Errorf("dial: %w", syscall.ECONNREFUSED): false,
		errors.New("x509: no"):                       false,
	} {
		if got := mayRetry(err); got != want {
			t.Errorf("mayRetry(%v) = %t, want %t", err, got, want)
		}
	}
}
