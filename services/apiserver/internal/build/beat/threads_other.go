//go:build !linux || !(amd64 || arm64)

package beat

// threads are there where the system has what they need.
type threads struct{}

// Start makes nothing here.
func Start() *Beat { return nil }

func (*threads) set(bool) {}

func (*threads) stop() {}
