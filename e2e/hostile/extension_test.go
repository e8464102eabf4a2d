package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

const (
	extensionGroup = "hostile.example"
	extensionPath  = "/apis/" + extensionGroup + "/v1"
	// extensionLists is the number of resources with endless lists, and of those with endless
	// events.
	extensionLists = 10
	// controllersSettle bounds each wait for the service controllers.
	controllersSettle = 2 * time.Minute
)

// hostileExtension is an extension server whose lists and events do not end.
type hostileExtension struct {
	t    *testing.T
	sent chan struct{} // receives a value after each response
}

func (e *hostileExtension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", jsonMedia)
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case r.URL.Path == extensionPath:
		e.serveDiscovery(w)
	case !strings.HasPrefix(r.URL.Path, extensionPath):
		http.NotFound(w, r)
	case strings.HasPrefix(resource, "lists"):
		e.sendEndlessly(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[`)
	case r.URL.Query().Get("watch") != "":
		e.sendEndlessly(w, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"a":[`)
	default:
		_, _ = io.WriteString(w,
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// serveDiscovery writes the discovery document with all resources.
func (e *hostileExtension) serveDiscovery(w http.ResponseWriter) {
	all := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: extensionGroup + "/v1",
	}
	for i := range extensionLists {
		for name, kind := range map[string]string{"lists": "List", "events": "Event"} {
			all.APIResources = append(all.APIResources, metav1.APIResource{
				Name: fmt.Sprint(name, i), Kind: fmt.Sprint(kind, i), Verbs: metav1.Verbs{"list", "watch", "delete"},
			})
		}
	}
	if err := json.NewEncoder(w).Encode(all); err != nil {
		e.t.Error(err)
	}
}

// sendEndlessly sends a response until the client closes the request, at most 64 MiB.
func (e *hostileExtension) sendEndlessly(w http.ResponseWriter, start string) {
	_, err := io.WriteString(w, start)
	part := strings.Repeat(`{"metadata":{"name":"a","resourceVersion":"1"}},`, 1000)
	for n := 0; err == nil && n < 64<<20; n += len(part) {
		_, err = io.WriteString(w, part)
	}
	select {
	case e.sent <- struct{}{}:
	default:
	}
}

// TestExtensionServerDoesNotExhaustControllers runs the service controllers with an extension
// server whose lists and events do not end. The test pins the limits of responses, and that the
// garbage collector works for other resources.
func TestExtensionServerDoesNotExhaustControllers(t *testing.T) {
	server := harness.StartServer(t)
	extension := &hostileExtension{t, make(chan struct{}, 4*extensionLists)}
	backend := httptest.NewTLSServer(extension)
	t.Cleanup(backend.Close)
	x := &target{url: server.URL, admin: newClient(tlsCertificate(t, server.Admin))}
	x.mustCreate(t, "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"hostile"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	x.mustCreate(t, "/apis/apiregistration.k8s.io/v1/apiservices",
		fmt.Sprintf(`{"metadata":{"name":"v1.%[1]s"},"spec":{"group":%[1]q,"version":"v1","groupPriorityMinimum":100,"versionPriority":10,
		"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"hostile","port":%[2]s}}}`,
			extensionGroup, backend.URL[strings.LastIndexByte(backend.URL, ':')+1:]))
	harness.Eventually(t, controllersSettle, "the extension server", func() error {
		return x.sendAndRead(x.admin, http.MethodGet, extensionPath, "", "").requireCode(http.StatusOK)
	})
	process := harness.NewProcess(t, "controllers", harness.Binary(t, harness.Controllers))
	process.Start("--kubeconfig="+server.Kubeconfig(server.PKI.Client("system:binnacle:controllers", "system:binnacle")),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", harness.FreePort(t)), "--cert-dir="+t.TempDir())
	most := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { most <- peakResidentMemory(ctx, process.PID()) }()
	for range 2 * extensionLists {
		select {
		case <-extension.sent:
		case <-time.After(controllersSettle):
			t.Fatal("the controllers do not read from the extension server")
		}
	}
	waitForGarbageCollection(t, server.Client())
	stop()
	peak := <-most
	t.Logf("at most %d MiB resident", peak>>20)
	if peak > maxMemoryGrowth {
		t.Errorf("got %d MiB resident, want at most %d MiB", peak>>20, maxMemoryGrowth>>20)
	}
	if !process.Running() {
		t.Errorf("the controllers have exited, want them to run: %s", process.Log())
	}
}

// waitForGarbageCollection waits until a dependent of a deleted object is deleted.
func waitForGarbageCollection(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	maps := c.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Name:       owner.Name,
			UID:        owner.UID,
		}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, controllersSettle, "the deletion of the dependent", func() error {
		_, err := maps.Get(t.Context(), "dependent", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get of the dependent: %w", err)
	})
}

// peakResidentMemory returns the largest resident memory of a process in bytes until the context
// ends.
func peakResidentMemory(ctx context.Context, pid int) (most int) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // fails when the process has exited
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.Atoi(fields[1])
			most = max(most, pages*os.Getpagesize())
		}
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
		}
	}
}
