package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"binnacle/e2e/harness"
)

// everyProcess lists the processes of `make ha`.
var everyProcess = []string{
	"apiserver-0", "etcd-0", "nats-0", "apiserver-1", "etcd-1", "nats-1", "apiserver-2", "etcd-2", "nats-2",
	"authn-webhook-0", "authn-webhook-1", "authz-webhook-0", "authz-webhook-1",
	"tokencleaner-0", "tokencleaner-1", "bootstrapsigner-0", "bootstrapsigner-1", "controllers-0", "controllers-1", "console",
}

// TestSuiteRecoversFromEveryProcessDeath kills each process of a replicated suite in turn, while
// two writers and a watcher use the balancer. Each process must be restarted, every acknowledged
// write must persist, and no event may be lost or duplicated.
func TestSuiteRecoversFromEveryProcessDeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	supervisor := harness.NewProcess(t, "binnacle", harness.Binary(t, harness.Everything))
	supervisor.Start("ha", "--dir="+dir, "--port="+strconv.Itoa(harness.FreePorts(t, haPorts)))
	waitForOutput(t, supervisor, "all services are ready")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client := harness.ClientFor(t, config)
	createNamespace(t, client, "load")
	maps := client.CoreV1().ConfigMaps("load")
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := startRecorder(ctx, harness.ClientFor(t, config), list.ResourceVersion)
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var group sync.WaitGroup
	load := make([]*loadWriter, 2)
	for i := range load {
		load[i] = &loadWriter{
			t:            t,
			maps:         harness.ClientFor(t, config).CoreV1().ConfigMaps("load"),
			again:        isConnectionError,
			keepInterval: 5,
		}
		group.Go(func() { load[i].run(writing, fmt.Sprintf("w%d", i)) })
	}
	for _, name := range everyProcess {
		killService(t, supervisor, name)
	}
	stopWriting()
	group.Wait()

	var all []change
	kept, retried := map[string]bool{}, 0
	for _, w := range load {
		all, retried = append(all, w.done...), retried+w.retried
		for _, name := range w.kept {
			kept[name] = true
		}
	}
	t.Logf("%d writes, %d of them retried", len(all), retried)
	end, err := maps.Create(t.Context(), configMap("end", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, change{watch.Added, end.Name, end.ResourceVersion})
	harness.Eventually(t, haPatience, "the watcher to receive all events", func() error {
		return seen.checkReached(uint64(parseRevision(t, end.ResourceVersion)))
	})
	seen.check(t, all, retried > 0)
	if list, err = maps.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		if !strings.HasPrefix(m.Name, "w") {
			continue
		}
		if !kept[m.Name] || m.Data["value"] != "3" {
			t.Errorf("%s exists with %v", m.Name, m.Data)
		}
		delete(kept, m.Name)
	}
	if len(kept) > 0 {
		t.Errorf("acknowledged objects missing: %v, want none", kept)
	}
	stop()
	if err := supervisor.Stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// killService kills a process of the suite and waits until it is restarted.
func killService(t *testing.T, supervisor *harness.Process, name string) {
	t.Helper()
	log := supervisor.Log()
	pids := regexp.MustCompile(name+` \(port \d+, process (\d+)\)`).FindAllStringSubmatch(log, -1)
	if len(pids) == 0 {
		t.Fatalf("got no process %s, want one", name)
	}
	pid, err := strconv.Atoi(pids[len(pids)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	ready := name + " is ready after"
	before := strings.Count(log, ready)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	harness.Eventually(t, haPatience, name+" to be restarted", func() error {
		if !supervisor.Running() {
			t.Fatal("the supervisor has exited")
		}
		if strings.Count(supervisor.Log(), ready) == before {
			return errors.New("not yet")
		}
		return nil
	})
}

// isConnectionError reports whether a request failed because its connection broke, or with an error
// after which controllers retry.
func isConnectionError(err error) bool {
	broken := new(url.Error)
	// client-go wraps an error in the middle of a response only as text.
	return isTemporary(err) || errors.As(err, &broken) || strings.Contains(err.Error(),
		"unexpected error when reading response body")
}
