package slowclients

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"golang.org/x/sync/errgroup"

	"binnacle/e2e/harness"
)

// standardFlag selects the HTTP/2 server of net/http.
const standardFlag = "--http2-implementation"

// hasStandardServer reports whether the server has standardFlag.
func hasStandardServer(t testing.TB) bool {
	t.Helper()
	help, err := exec.Command(harness.Binary(t, harness.APIServer), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	return strings.Contains(string(help), standardFlag)
}

// server is an API server with objects to list.
type server struct {
	*harness.Server
	addr   string
	client *kubernetes.Clientset // with a fast connection
}

// startServer starts a server with the objects that the cells need.
func startServer(t testing.TB, cells []*cell, flags ...string) *server {
	t.Helper()
	started := harness.StartServer(t, harness.WithFlags(flags...))
	s := &server{Server: started, addr: strings.TrimPrefix(started.URL, "https://"), client: started.Client()}
	for _, name := range []string{"small", "large", "watched", "uploads"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The numbers of objects in the namespaces small and large.
	small, large := 1, 1
	for _, c := range cells {
		switch c.workload {
		case listThirtyTimes:
			small = max(small, c.transferBytes()/30/smallObject)
		case listAndWatch:
			small = max(small, c.transferBytes()/10/smallObject)
		case listOnce, watchInitialEvents:
			large = max(large, c.transferBytes()/largeObject)
		}
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	fill := func(namespace string, objects, size int) {
		for i := range objects {
			group.Go(func() error {
				body := configMap(fmt.Sprintf("object-%d", i), map[string]string{"n": strconv.Itoa(i)}, size-500)
				_, err := s.createObject(ctx, namespace, body)
				return err
			})
		}
	}
	fill("small", small, smallObject)
	fill("large", large, largeObject)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return s
}

// createForCell creates an object of a cell and returns its resource version.
func (s *server) createForCell(ctx context.Context, namespace, name, cell string, data []byte) (string, error) {
	return s.createObject(ctx, namespace, configMap(name, map[string]string{"cell": cell}, len(data)))
}

// createObject creates a config map and returns its resource version.
func (s *server) createObject(ctx context.Context, namespace string, body []byte) (string, error) {
	var object corev1.ConfigMap
	err := s.client.CoreV1().RESTClient().Post().AbsPath(configMapsPath(namespace)).SetHeader("Content-Type",
		"application/json").Body(body).Do(ctx).Into(&object)
	return object.ResourceVersion, err
}
