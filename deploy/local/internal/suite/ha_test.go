package suite_test

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"binnacle/deploy/local/internal/suite"
)

// instances are the instances of a replicated suite in start order.
var instances = []string{
	"etcd-0", "etcd-1", "etcd-2", "nats-0", "nats-1", "nats-2", "apiserver-0", "apiserver-1", "apiserver-2",
	"authn-webhook-0", "authn-webhook-1", "authz-webhook-0", "authz-webhook-1",
	"tokencleaner-0", "tokencleaner-1", "bootstrapsigner-0", "bootstrapsigner-1", "controllers-0", "controllers-1", "console",
}

// TestRollingRestartWaitsForEachInstance restarts one instance after the other, each when the
// previous one is ready.
func TestRollingRestartWaitsForEachInstance(t *testing.T) {
	restart := make(chan struct{})
	runningSuite := startSuite(t, func(c *suite.Config) { c.HA, c.Restart = true, restart })
	runningSuite.out.await("all services are ready")
	for _, port := range []int{0, 1, 2} { // the balanced services
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", runningSuite.Port+port))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	restart <- struct{}{}
	runningSuite.out.await("rolling restart: done")
	text := runningSuite.out.String()
	text = text[strings.Index(text, "rolling restart ..."):]
	previousReady := 0
	for _, name := range instances {
		stopped, ready := strings.Index(text, name+" stopped in"), strings.Index(text, name+" is ready after")
		if stopped < previousReady || ready < stopped {
			t.Fatalf("%s: stopped at %d, ready at %d, the one before at %d in\n%s", name, stopped, ready, previousReady, text)
		}
		previousReady = ready
	}
	runningSuite.stop()
	if err := <-runningSuite.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
	for _, name := range instances {
		if n := strings.Count(runningSuite.out.String(), name+" stopped in"); n != 2 {
			t.Errorf("%s: got %d stops, want 2", name, n)
		}
	}
}

// pid returns the process id of the last process of an instance.
func pid(t *testing.T, text, name string) int {
	t.Helper()
	matches := regexp.MustCompile(name+` \(port \d+, process (\d+)\)`).FindAllStringSubmatch(text, -1)
	if len(matches) == 0 {
		t.Fatalf("%s: output has no process:\n%s", name, text)
	}
	n, err := strconv.Atoi(matches[len(matches)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestExitedInstanceIsRestarted checks that the log reports the restart, and other instances keep
// running.
func TestExitedInstanceIsRestarted(t *testing.T) {
	restart := make(chan struct{})
	runningSuite := startSuite(t, func(c *suite.Config) { c.HA, c.Restart, c.RestartDelay = true, restart, 500*time.Millisecond })
	runningSuite.out.await("all services are ready")
	killed := []string{"apiserver-0", "etcd-2", "nats-1", "tokencleaner-0"}
	start := len(runningSuite.out.String())
	for _, name := range killed {
		if err := syscall.Kill(pid(t, runningSuite.out.String(), name), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range killed {
		runningSuite.out.awaitAfter(start, name+" is ready after")
		output := runningSuite.out.String()[start:]
		for _, want := range []string{name + " exited (signal: killed); its last lines:",
			"restarting " + name + " in 500ms (attempt 1)", "started " + name} {
			if !strings.Contains(output, want) {
				t.Errorf("output does not contain %q:\n%s", want, output)
			}
		}
	}
	start = len(runningSuite.out.String())
	if err := syscall.Kill(pid(t, runningSuite.out.String(), "apiserver-0"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	runningSuite.out.awaitAfter(start, "restarting apiserver-0 in 1s (attempt 2)")
	restart <- struct{}{} // during the delay
	runningSuite.out.awaitAfter(start, "rolling restart: done")
	runningSuite.stop()
	if err := <-runningSuite.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
	// The start after the first exit, and the one by the rolling restart, which replaces the start
	// after the second exit. The first start of the suite is reported in another form.
	text := runningSuite.out.String()
	if n := strings.Count(text, "started apiserver-0 (port"); n != 2 {
		t.Errorf("got %d restarts of apiserver-0, want 2:\n%s", n, text)
	}
}

// TestSuiteEndsWithoutQuorum checks that the suite ends some time after etcd has lost its quorum.
func TestSuiteEndsWithoutQuorum(t *testing.T) {
	runningSuite := startSuite(t, func(c *suite.Config) {
		c.HA, c.QuorumPatience, c.RestartDelay = true, time.Second, 20*time.Millisecond
	})
	runningSuite.out.await("all services are ready")
	t.Setenv("FAKE_etcd", "die") // for the processes that the suite restarts
	for i := range 3 {
		if err := syscall.Kill(pid(t, runningSuite.out.String(), fmt.Sprint("etcd-", i)), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-runningSuite.done; err == nil || !strings.Contains(err.Error(), "etcd has had no quorum for") {
		t.Errorf("Up() = %v, want the error: etcd has had no quorum", err)
	}
	for _, want := range []string{"etcd has no quorum", "(attempt 2)"} {
		if !strings.Contains(runningSuite.out.String(), want) {
			t.Errorf("output does not contain %q:\n%s", want, runningSuite.out.String())
		}
	}
}
