package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Ports are taken below the range that systems give to outgoing connections, so
// that none of those takes one while a server restarts.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// FreePort reserves a port of the loopback interface, against all processes
// that use this package, until the test ends.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)
}

// FreePorts is FreePort for n ports in a row, and returns the first.
func FreePorts(t testing.TB, n int) int {
	t.Helper()
	for range portTries {
		first := firstPort + rand.IntN(lastPort-firstPort)
		var releases []func()
		for port := first; port < first+n; port++ {
			release, err := reserve(port)
			if err != nil {
				t.Fatal(err)
			}
			if release == nil {
				break
			}
			releases = append(releases, release)
		}
		if len(releases) == n {
			t.Cleanup(func() { releaseAll(releases) })
			return first
		}
		releaseAll(releases)
	}
	t.Fatalf("no %d free ports between %d and %d", n, firstPort, lastPort)
	return 0
}

func releaseAll(releases []func()) {
	for _, release := range releases {
		release()
	}
}

// reserve returns nil when the port is in use.
func reserve(port int) (release func(), err error) {
	dir := filepath.Join(os.TempDir(), "binnacle-e2e-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	release, ok, err := tryLockFile(filepath.Join(dir, strconv.Itoa(port)))
	if err != nil || !ok {
		return nil, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		release()
		return nil, nil
	}
	return release, l.Close()
}
