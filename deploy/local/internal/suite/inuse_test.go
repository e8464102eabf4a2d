package suite_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"binnacle/deploy/local/internal/suite"
)

// TestUsedPortIsReported checks that the suite names the ports and starts nothing.
func TestUsedPortIsReported(t *testing.T) {
	var busy int
	runningSuite := startSuite(t, func(c *suite.Config) {
		busy = c.Port + 2
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", busy))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	})
	want := fmt.Sprintf("ports in use by other processes: %d; choose others with --port: the suite needs 7 consecutive ports, now %d to %d", busy, runningSuite.Port, runningSuite.Port+6)
	if err := <-runningSuite.done; err == nil || err.Error() != want {
		t.Errorf("Up() = %v, want %s", err, want)
	}
	if text := runningSuite.out.String(); strings.Contains(text, "begins") {
		t.Errorf("got started services:\n%s", text)
	}
}

// TestSecondSuiteInFolderIsRejected checks that a second suite in a folder with other ports starts
// nothing, and does not replace the kubeconfigs of the first one.
func TestSecondSuiteInFolderIsRejected(t *testing.T) {
	first := startSuite(t, nil)
	first.out.await("all services are ready")
	kubeconfig := filepath.Join(first.Dir, "kubeconfig")
	before, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, replicated := range []bool{false, true} {
		second := startSuite(t, func(c *suite.Config) { c.Dir, c.HA = first.Dir, replicated })
		want := first.Dir + " is in use by another process; choose another folder with --dir"
		if err := <-second.done; err == nil || err.Error() != want {
			t.Errorf("Up() = %v, want %s", err, want)
		}
	}
	if after, err := os.ReadFile(kubeconfig); err != nil || !bytes.Equal(after, before) {
		t.Errorf("got kubeconfig\n%s, %v, want\n%s", after, err, before)
	}
	first.stop()
	if err := <-first.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
}
