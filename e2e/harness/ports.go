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

// Ports are below the range of ephemeral ports, so that no outgoing connection takes one while a
// server restarts.
const (
	firstPort    = 20000
	lastPort     = 32000
	portAttempts = 200
)

// FreePort reserves a port of the loopback interface until the test ends. Other processes that use
// this package do not get it.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)
}

// FreePorts reserves n consecutive ports and returns the first.
func FreePorts(t testing.TB, count int) int {
	t.Helper()
	for range portAttempts {
		base := firstPort + rand.IntN(lastPort-firstPort)
		var releases []func()
		for port := base; port < base+count; port++ {
			release, err := reservePort(port)
			if err != nil {
				t.Fatal(err)
			}
			if release == nil {
				break
			}
			releases = append(releases, release)
		}
		if len(releases) == count {
			t.Cleanup(func() { callAll(releases) })
			return base
		}
		callAll(releases)
	}
	t.Fatalf("no %d consecutive free ports between %d and %d", count, firstPort, lastPort)
	return 0
}

// callAll calls all functions.
func callAll(releases []func()) {
	for _, release := range releases {
		release()
	}
}

// reservePort reserves a port until release is called. It returns a nil release if the port is in
// use.
func reservePort(port int) (release func(), err error) {
	dir := filepath.Join(os.TempDir(), "binnacle-e2e-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	release, ok, err := tryLockFile(filepath.Join(dir, strconv.Itoa(port)))
	if err != nil || !ok {
		return nil, err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		release()
		return nil, nil
	}
	return release, listener.Close()
}
