package suite_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"binnacle/deploy/local/internal/suite"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fake-services")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fake = filepath.Join(dir, "fake")
	if out, err := exec.Command("go", "build", "-o", fake, "./testdata/fake").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// fake is the fake binary. TestMain sets it.
var fake string

var names = []string{"apiserver", "authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner", "controllers", "console"}

// output collects the output of a suite.
type output struct {
	mu      sync.Mutex
	changed *sync.Cond
	text    strings.Builder
	ended   bool // no output follows
	t       *testing.T
}

func newOutput(t *testing.T) *output {
	o := &output{t: t}
	o.changed = sync.NewCond(&o.mu)
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.Broadcast()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// markEnded records that no output follows, and wakes all waiters.
func (o *output) markEnded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
}

// await blocks until the output contains text. It fails the test when the suite has ended without
// it.
func (o *output) await(text string) {
	o.t.Helper()
	o.awaitAfter(0, text)
}

// awaitAfter is await for the output after the first bytes.
func (o *output) awaitAfter(start int, text string) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !strings.Contains(o.text.String()[start:], text) {
		if o.ended {
			o.t.Fatalf("the suite ended without %q:\n%s", text, o.text.String())
		}
		o.changed.Wait()
	}
}

// The ports are below the range of outgoing connections and of listeners without a fixed port,
// which tests of other packages use.
const (
	firstPort = 12000
	lastPort  = 20000
	portTries = 200
)

// freePorts returns the first of enough consecutive free ports for a replicated suite.
func freePorts(t *testing.T) int {
	t.Helper()
	for range portTries {
		base := firstPort + rand.IntN(lastPort-firstPort)
		if areFree(base, suite.Ports) {
			return base
		}
	}
	t.Fatalf("no %d consecutive free ports between %d and %d, want one", suite.Ports, firstPort, lastPort)
	return 0
}

// areFree reports whether n consecutive ports are free.
func areFree(base, count int) bool {
	for port := base; port < base+count; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

type runningSuite struct {
	suite.Config
	out        *output
	stop, kill context.CancelFunc
	done       chan error
}

// startSuite runs a suite of fake services. change may change its configuration.
func startSuite(t *testing.T, change func(*suite.Config)) *runningSuite {
	t.Helper()
	running := &runningSuite{out: newOutput(t), done: make(chan error, 1)}
	running.Config = suite.Config{
		Dir:     filepath.Join(t.TempDir(), "local"),
		Self:    fake,
		Port:    freePorts(t),
		Timeout: 5 * time.Minute,
		Out:     running.out,
	}
	if change != nil {
		change(&running.Config)
	}
	var ctx, killNow context.Context
	ctx, running.stop = context.WithCancel(t.Context())
	killNow, running.kill = context.WithCancel(context.Background())
	t.Cleanup(running.kill)
	go func() {
		err := suite.Up(ctx, killNow, running.Config)
		if err != nil {
			fmt.Fprintln(running.out, err)
		}
		running.done <- err
		running.out.markEnded()
	}()
	return running
}

// TestUpStartsAndStopsInOrder checks the kubeconfigs, the order of starts and stops, and the
// printed lines.
func TestUpStartsAndStopsInOrder(t *testing.T) {
	runningSuite := startSuite(t, nil)
	runningSuite.out.await("all services are ready")
	runningSuite.out.await("Ctrl-C stops everything")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(runningSuite.Dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("https://127.0.0.1:%d", runningSuite.Port); config.Host != want || config.TLSClientConfig.CertFile == "" {
		t.Errorf("got kubeconfig %+v, want host %s and a client certificate", config, want)
	}
	authority, err := clientcmd.BuildConfigFromFlags("", filepath.Join(runningSuite.Dir, "apiserver-authz-webhook.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("https://127.0.0.1:%d", runningSuite.Port+2); authority.Host != want ||
		filepath.Base(authority.TLSClientConfig.CertFile) != "apiserver-webhook-client.crt" {
		t.Errorf("got address %s, want %s: %+v", authority.Host, want, authority)
	}
	link, err := os.ReadFile(filepath.Join(runningSuite.Dir, "console.url"))
	if want := fmt.Sprintf("https://127.0.0.1:%d/#token=", runningSuite.Port+5); err != nil || !strings.HasPrefix(string(link),
		want) || len(link) < len(want)+20 {
		t.Errorf("got console link %q, %v, want one that begins with %s", link, err, want)
	}
	for _, secret := range []string{"console.url", "tokens.csv"} {
		if info, err := os.Stat(filepath.Join(runningSuite.Dir, secret)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v, %v, want mode 0600", secret, info, err)
		}
	}
	runningSuite.stop()
	if err := <-runningSuite.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
	text := runningSuite.out.String()
	if token := strings.TrimSpace(string(link[strings.LastIndexByte(string(link), '=')+1:])); strings.Contains(text, token) {
		t.Errorf("output contains the console token: %s, want none", text)
	}
	for _, name := range names {
		for _, want := range []string{name + " (port ", fmt.Sprintf("%-15s | fake %s ends", name, name)} {
			if !strings.Contains(text, want) {
				t.Errorf("output does not contain %q:\n%s", want, text)
			}
		}
	}
	for i := 1; i < len(names); i++ {
		if strings.Index(text, names[i]+" stopped in") > strings.Index(text, names[i-1]+" stopped in") {
			t.Errorf("got %s stopped after %s, want it before", names[i], names[i-1])
		}
	}
	for _, want := range []string{"export KUBECONFIG=" + filepath.Join(runningSuite.Dir, "kubeconfig") + "\n",
		"kubectl get namespaces\n", "asked by binnacle-admin"} {
		if !strings.Contains(text, want) {
			t.Errorf("output does not contain %q:\n%s", want, text)
		}
	}
}

// TestUpKeepsExistingFiles checks that a second start keeps the certificates of the first one.
func TestUpKeepsExistingFiles(t *testing.T) {
	dir := t.TempDir()
	var first []byte
	for i := range 2 {
		runningSuite := startSuite(t, func(c *suite.Config) { c.Dir = dir })
		runningSuite.out.await("all services are ready")
		runningSuite.stop()
		if err := <-runningSuite.done; err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "certs", "ca", "serving-ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = data
		} else if string(data) != string(first) || strings.Contains(runningSuite.out.String(), " created ") {
			t.Errorf("start %d: got another CA or reports of created files, want the first CA unchanged\n%s", i+1, runningSuite.out.String())
		}
	}
}

// TestExitedServiceStopsTheSuite checks that the exit of a service stops all others and is reported
// with its last lines.
func TestExitedServiceStopsTheSuite(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		t.Setenv("FAKE_tokencleaner", "die")
		runningSuite := startSuite(t, nil)
		err := <-runningSuite.done
		text := runningSuite.out.String()
		if err == nil || err.Error() != "tokencleaner exited (exit status 3)" {
			t.Errorf("Up() = %v, want error \"tokencleaner exited (exit status 3)\"", err)
		}
		if !strings.Contains(text, "tokencleaner exited (exit status 3); its last lines:") ||
			strings.Count(text, "fatal: cannot start") != 2 {
			t.Errorf("got output\n%s\nwant a report of tokencleaner with its last lines, twice", text)
		}
		if !strings.Contains(text, "apiserver stopped in") || strings.Contains(text, "bootstrapsigner stopped in") {
			t.Errorf("got output\n%s\nwant apiserver stopped and bootstrapsigner not started", text)
		}
	})
	t.Run("later", func(t *testing.T) {
		runningSuite := startSuite(t, nil)
		runningSuite.out.await("all services are ready")
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		if resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("https://127.0.0.1:%d/die", runningSuite.Port)); err == nil {
			resp.Body.Close()
		}
		if err := <-runningSuite.done; err == nil || err.Error() != "apiserver exited (exit status 4)" {
			t.Errorf("Up() = %v, want error \"apiserver exited (exit status 4)\"", err)
		}
		if text := runningSuite.out.String(); !strings.Contains(text, "    line without an end\n") {
			t.Errorf("output has no last line:\n%s", text)
		}
	})
}

// TestUpReportsProgress checks that the failing checks are printed while the suite waits, and
// returned after the timeout.
func TestUpReportsProgress(t *testing.T) {
	t.Setenv("FAKE_apiserver", "unready")
	running := startSuite(t, func(c *suite.Config) {
		c.Timeout, c.ReportInterval, c.SettleTimeout = time.Second, 200*time.Millisecond, 100*time.Millisecond
	})
	if err := <-running.done; err == nil || !strings.Contains(err.Error(), "apiserver is not ready: failing checks: etcd") {
		t.Errorf("Up() = %v, want the error: apiserver is not ready: failing checks: etcd", err)
	}
	if text := running.out.String(); !strings.Contains(text, "waiting for apiserver: failing checks: etcd") {
		t.Errorf("got output\n%s\nwant the failing checks of apiserver", text)
	}
}

// TestStopWhileWaitingIsNoError checks that the suite can be stopped before its services are ready.
func TestStopWhileWaitingIsNoError(t *testing.T) {
	t.Setenv("FAKE_apiserver", "unready")
	running := startSuite(t, func(c *suite.Config) { c.SettleTimeout = 100 * time.Millisecond })
	running.out.await("fake console begins")
	running.stop()
	if err := <-running.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
}

// TestSecondSignalKills checks that a service that does not stop is killed after the second signal.
func TestSecondSignalKills(t *testing.T) {
	t.Setenv("FAKE_authn_webhook", "stubborn")
	runningSuite := startSuite(t, nil)
	runningSuite.out.await("all services are ready")
	runningSuite.stop()
	runningSuite.out.await("authz-webhook stopped")
	runningSuite.kill()
	if err := <-runningSuite.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
	if text := runningSuite.out.String(); !strings.Contains(text, "authn-webhook did not stop and was killed") {
		t.Errorf("got output\n%s\nwant a report that authn-webhook was killed", text)
	}
}

// TestUpWritesNothingTwice checks that a suite that ran before starts without writing files, as on
// a full disk.
func TestUpWritesNothingTwice(t *testing.T) {
	dir, port := t.TempDir(), freePorts(t)
	modificationTimes := func() map[string]time.Time {
		running := startSuite(t, func(c *suite.Config) { c.Dir, c.Port = dir, port })
		running.out.await("all services are ready")
		running.stop()
		if err := <-running.done; err != nil {
			t.Fatal(err)
		}
		times := map[string]time.Time{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				times[path] = info.ModTime()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return times
	}
	before := modificationTimes()
	for path, at := range modificationTimes() {
		if !at.Equal(before[path]) {
			t.Errorf("%s: got it written again, want it unchanged", path)
		}
	}
}

// TestLongRunningSuiteRenewsCertificates checks that a certificate that is due is replaced while
// the suite runs, and NATS, which does not watch files, reloads.
func TestLongRunningSuiteRenewsCertificates(t *testing.T) {
	runningSuite := startSuite(t, func(c *suite.Config) { c.HA, c.RenewInterval = true, 100*time.Millisecond })
	runningSuite.out.await("all services are ready")
	path := filepath.Join(runningSuite.Dir, "certs", "nats", "nats.crt")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	runningSuite.out.await("renewed 1 certificates and keys")
	runningSuite.out.await("fake nats-server reloads")
	if after, err := os.ReadFile(path); err != nil || string(after) == string(before) {
		t.Errorf("got the certificate of before, %v", err)
	}
	runningSuite.stop()
	if err := <-runningSuite.done; err != nil {
		t.Errorf("Up() = %v, want nil", err)
	}
	if text := runningSuite.out.String(); strings.Contains(text, "TLS handshake error") {
		t.Errorf("got probes without TLS:\n%s", text)
	}
}

// TestStartIsQuiet checks that besides the lines of the services, a start prints little.
func TestStartIsQuiet(t *testing.T) {
	for _, replicated := range []bool{false, true} {
		runningSuite := startSuite(t, func(c *suite.Config) { c.HA = replicated })
		runningSuite.out.await("Ctrl-C stops everything")
		own := 0
		for line := range strings.Lines(runningSuite.out.String()) {
			if !strings.Contains(line, " | fake ") && !strings.Contains(line, " | asked by ") {
				own++
			}
		}
		if own > 10 {
			t.Errorf("replicated: %t: got %d lines, want at most 10:\n%s", replicated, own, runningSuite.out.String())
		}
		runningSuite.stop()
		if err := <-runningSuite.done; err != nil {
			t.Errorf("Up() = %v, want nil", err)
		}
	}
}
