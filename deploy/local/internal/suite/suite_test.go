package suite_test

import (
	"context"
	"crypto/tls"
	"fmt"
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
	if err == nil {
		err = buildFakes(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fakes = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// fakes is the folder of the fake binaries. TestMain sets it.
var fakes string

var names = []string{"apiserver", "authn-webhook", "authz-webhook", "tokencleaner", "bootstrapsigner", "controllers", "console"}

func buildFakes(dir string) error {
	fake := filepath.Join(dir, names[0])
	if out, err := exec.Command("go", "build", "-o", fake, "./testdata/fake").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for _, name := range append(names[1:], "etcd", "nats-server") {
		if err := os.Link(fake, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

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

// end wakes all waiters.
func (o *output) end() {
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
func (o *output) awaitAfter(begin int, text string) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !strings.Contains(o.text.String()[begin:], text) {
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
	t.Fatalf("got no %d consecutive free ports between %d and %d", suite.Ports, firstPort, lastPort)
	return 0
}

// areFree reports whether n consecutive ports are free.
func areFree(base, n int) bool {
	for port := base; port < base+n; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

type up struct {
	suite.Config
	out        *output
	stop, kill context.CancelFunc
	done       chan error
}

func start(t *testing.T, bin string, change func(*suite.Config)) *up {
	t.Helper()
	u := &up{out: newOutput(t), done: make(chan error, 1)}
	u.Config = suite.Config{Dir: filepath.Join(t.TempDir(), "local"), BinDir: bin, Port: freePorts(t), NoBuild: true, Timeout: 5 * time.Minute, Out: u.out}
	if change != nil {
		change(&u.Config)
	}
	var ctx, hurry context.Context
	ctx, u.stop = context.WithCancel(t.Context())
	hurry, u.kill = context.WithCancel(context.Background())
	t.Cleanup(u.kill)
	go func() {
		err := suite.Up(ctx, hurry, u.Config)
		if err != nil {
			fmt.Fprintln(u.out, err)
		}
		u.done <- err
		u.out.end()
	}()
	return u
}

func TestUpStartsAndStopsInOrder(t *testing.T) {
	u := start(t, fakes, nil)
	u.out.await("all services are ready")
	u.out.await("Ctrl-C stops everything")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(u.Dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("https://127.0.0.1:%d", u.Port); config.Host != want || config.TLSClientConfig.CertFile == "" {
		t.Errorf("got kubeconfig %+v", config)
	}
	authority, err := clientcmd.BuildConfigFromFlags("", filepath.Join(u.Dir, "apiserver-authz-webhook.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("https://127.0.0.1:%d", u.Port+2); authority.Host != want || filepath.Base(authority.TLSClientConfig.CertFile) != "apiserver-webhook-client.crt" {
		t.Errorf("got address %s, want %s: %+v", authority.Host, want, authority)
	}
	link, err := os.ReadFile(filepath.Join(u.Dir, "console.url"))
	if want := fmt.Sprintf("https://127.0.0.1:%d/#token=", u.Port+5); err != nil || !strings.HasPrefix(string(link), want) || len(link) < len(want)+20 {
		t.Errorf("got console link %q, %v", link, err)
	}
	for _, secret := range []string{"console.url", "tokens.csv"} {
		if info, err := os.Stat(filepath.Join(u.Dir, secret)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v %v", secret, info, err)
		}
	}
	u.stop()
	if err := <-u.done; err != nil {
		t.Errorf("got Up() = %v", err)
	}
	text := u.out.String()
	if token := strings.TrimSpace(string(link[strings.LastIndexByte(string(link), '=')+1:])); strings.Contains(text, token) {
		t.Error("got the console token in the output")
	}
	for _, name := range names {
		for _, want := range []string{"started " + name, name + " is ready on port", fmt.Sprintf("%-15s | fake %s ends", name, name)} {
			if !strings.Contains(text, want) {
				t.Errorf("got no %q in\n%s", want, text)
			}
		}
	}
	for i := 1; i < len(names); i++ {
		if strings.Index(text, names[i]+" stopped in") > strings.Index(text, names[i-1]+" stopped in") {
			t.Errorf("%s stopped after %s", names[i], names[i-1])
		}
	}
	for _, want := range []string{"export KUBECONFIG=" + filepath.Join(u.Dir, "kubeconfig") + "\n", "kubectl get namespaces\n", "asked by binnacle-admin"} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
}

// TestOneBinaryRunsEverything: one binary may contain all services. It starts itself with the name
// of the service.
func TestOneBinaryRunsEverything(t *testing.T) {
	self := filepath.Join(t.TempDir(), "everything")
	if err := os.Link(filepath.Join(fakes, names[0]), self); err != nil {
		t.Fatal(err)
	}
	for _, replicated := range []bool{false, true} {
		u := start(t, "", func(c *suite.Config) { c.Self, c.NoBuild, c.HA = self, false, replicated })
		u.out.await("Ctrl-C stops everything")
		u.stop()
		if err := <-u.done; err != nil {
			t.Errorf("got Up() = %v", err)
		}
		text := u.out.String()
		if strings.Contains(text, "build ") || strings.Contains(text, "make kubectl") {
			t.Errorf("got a request for a checkout:\n%s", text)
		}
		for _, name := range names {
			if !strings.Contains(text, "fake "+name+" ends") {
				t.Errorf("%s was not started:\n%s", name, text)
			}
		}
	}
}

func TestUpKeepsExistingFiles(t *testing.T) {
	dir := t.TempDir()
	var first []byte
	for i := range 2 {
		u := start(t, fakes, func(c *suite.Config) { c.Dir = dir })
		u.out.await("all services are ready")
		u.stop()
		if err := <-u.done; err != nil {
			t.Fatal(err)
		}
		ca, err := os.ReadFile(filepath.Join(dir, "certs", "ca", "serving-ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = ca
		} else if string(ca) != string(first) || strings.Contains(u.out.String(), " made ") {
			t.Error("certificates were reissued")
		}
	}
}

func TestExitedServiceStopsTheSuite(t *testing.T) {
	t.Run("at the start", func(t *testing.T) {
		t.Setenv("FAKE_tokencleaner", "die")
		u := start(t, fakes, nil)
		err := <-u.done
		text := u.out.String()
		if err == nil || err.Error() != "tokencleaner exited (exit status 3)" {
			t.Errorf("got Up() = %v", err)
		}
		if !strings.Contains(text, "tokencleaner exited (exit status 3); its last lines:") || strings.Count(text, "fatal: cannot start") != 2 {
			t.Errorf("got no report:\n%s", text)
		}
		for _, name := range []string{"apiserver", "bootstrapsigner"} {
			if !strings.Contains(text, name+" stopped in") {
				t.Errorf("%s was not stopped:\n%s", name, text)
			}
		}
	})
	t.Run("later", func(t *testing.T) {
		u := start(t, fakes, nil)
		u.out.await("all services are ready")
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		if resp, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("https://127.0.0.1:%d/die", u.Port)); err == nil {
			resp.Body.Close()
		}
		if err := <-u.done; err == nil || err.Error() != "apiserver exited (exit status 4)" {
			t.Errorf("got Up() = %v", err)
		}
		if text := u.out.String(); !strings.Contains(text, "    line without an end\n") {
			t.Errorf("got no last line:\n%s", text)
		}
	})
}

func TestUpReportsProgress(t *testing.T) {
	t.Setenv("FAKE_apiserver", "unready")
	u := start(t, fakes, func(c *suite.Config) { c.Timeout = 4 * time.Second })
	if err := <-u.done; err == nil || !strings.Contains(err.Error(), "apiserver is not ready: failing checks: etcd") {
		t.Errorf("got Up() = %v", err)
	}
	if text := u.out.String(); !strings.Contains(text, "waiting for apiserver: failing checks: etcd") {
		t.Errorf("got no progress:\n%s", text)
	}
}

func TestStopWhileWaitingIsNoError(t *testing.T) {
	t.Setenv("FAKE_apiserver", "unready")
	u := start(t, fakes, nil)
	u.out.await("tokencleaner is ready")
	u.stop()
	if err := <-u.done; err != nil {
		t.Errorf("got Up() = %v", err)
	}
}

func TestSecondSignalKills(t *testing.T) {
	t.Setenv("FAKE_authn_webhook", "stubborn")
	u := start(t, fakes, nil)
	u.out.await("all services are ready")
	u.stop()
	u.out.await("authz-webhook stopped")
	u.kill()
	if err := <-u.done; err != nil {
		t.Errorf("got Up() = %v", err)
	}
	if text := u.out.String(); !strings.Contains(text, "authn-webhook did not stop and was killed") {
		t.Errorf("got:\n%s", text)
	}
}

// TestPortInUse: the suite reports the error and ends.
func TestPortInUse(t *testing.T) {
	u := start(t, fakes, func(c *suite.Config) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.Port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	})
	if err := <-u.done; err == nil || err.Error() != "apiserver exited (exit status 1)" {
		t.Errorf("got Up() = %v", err)
	}
	u.out.await("address already in use")
}

func TestMissingBinary(t *testing.T) {
	u := start(t, t.TempDir(), nil)
	if err := <-u.done; err == nil || !strings.Contains(err.Error(), "--no-build") {
		t.Errorf("got Up() = %v", err)
	}
}
