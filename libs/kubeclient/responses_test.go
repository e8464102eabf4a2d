package kubeclient_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"binnacle/libs/kubeclient"
)

const (
	jsonMedia     = "application/json"
	protobufMedia = "application/vnd.kubernetes.protobuf"
)

// configOf returns the client configuration for a server that runs until the end of the test.
func configOf(t *testing.T, handler http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	options := kubeclient.NewOptions()
	options.Master = server.URL
	config, err := options.Config("test")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// getBody returns the body of a response.
func getBody(ctx context.Context, t *testing.T, config *rest.Config, path string) ([]byte, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, "GET", config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// TestListOfLargeObjectsUsesSmallerPages checks that EachPage continues with smaller pages after a
// response that is too large, and visits all objects.
func TestListOfLargeObjectsUsesSmallerPages(t *testing.T) {
	const objects, size = 200, 128 << 10 // more than a response may have
	value := strings.Repeat("x", size)
	var limits []string
	config := configOf(t, func(w http.ResponseWriter, r *http.Request) {
		limits = append(limits, r.URL.Query().Get("limit"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		start, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		page := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
		end := min(start+limit, objects)
		for i := start; i < end; i++ {
			page.Items = append(page.Items, corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)},
				Data:       map[string]string{"a": value},
			})
		}
		if end < objects {
			page.Continue = strconv.Itoa(end)
		}
		w.Header().Set("Content-Type", jsonMedia)
		_ = json.NewEncoder(w).Encode(page)
	})
	client, err := kubeclient.NewClient(config, corev1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := kubeclient.NewResource[corev1.ConfigMap, corev1.ConfigMapList](client,
		corev1.SchemeGroupVersion.WithResource("configmaps"), "")
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	err = kubeclient.EachPage(t.Context(), objects, maps.List, func(page *corev1.ConfigMapList) error {
		for i := range page.Items {
			if got, want := page.Items[i].Name, strconv.Itoa(next); got != want {
				return fmt.Errorf("got object %s, want %s", got, want)
			}
			next++
		}
		return nil
	})
	if err != nil || next != objects {
		t.Errorf("EachPage returned %v after %d objects, want nil after %d", err, next, objects)
	}
	if want := []string{"200", "50", "50", "50", "50"}; !slices.Equal(limits, want) {
		t.Errorf("got limits %q, want %q", limits, want)
	}
}

// serveRepeated writes a text until the client leaves.
func serveRepeated(media, prefix, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, err := io.WriteString(w, prefix)
		for chunk := strings.Repeat(text, 1<<14); err == nil; {
			_, err = io.WriteString(w, chunk)
		}
	}
}

// serveText writes a response.
func serveText(media, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, text)
	}
}

// protobufField returns a field of a protobuf message.
func protobufField(number byte, value string) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(value)))) + value
}

// serveCompressed writes a response that is much larger after decompression.
func serveCompressed(w http.ResponseWriter, _ *http.Request) {
	var text bytes.Buffer
	compressor := gzip.NewWriter(&text)
	_, _ = compressor.Write(make([]byte, 64<<20)) // writes to a bytes.Buffer do not fail
	_ = compressor.Close()
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(text.Bytes())
}

// TestResponsesAndEventsAreBounded checks that responses and watch events with too many bytes or
// values end with ErrResponseTooLarge.
func TestResponsesAndEventsAreBounded(t *testing.T) {
	tests := []struct {
		name  string
		path  string
		serve http.HandlerFunc
	}{
		{name: "endless response", path: "/api/v1/pods", serve: serveRepeated(jsonMedia, "", "x")},
		{name: "compressed response", path: "/api/v1/pods", serve: serveCompressed},
		{name: "endless JSON event", path: "/api/v1/pods?watch=true", serve: serveRepeated(jsonMedia, `{"a":{}}{"a":"`, `}\"`)},
		{
			name:  "many JSON values",
			path:  "/api/v1/pods",
			serve: serveText(jsonMedia, `{"items":[`+strings.Repeat("null,", 600<<10)+"null]}"),
		},
		{
			name:  "many values of an event",
			path:  "/api/v1/pods?watch=1",
			serve: serveText(jsonMedia, `{"a":[`+strings.Repeat("{},", 300<<10)+"{}]}"),
		},
		{
			name:  "many objects in protobuf",
			path:  "/api/v1/pods",
			serve: serveText(protobufMedia, "k8s\x00"+protobufField(2, strings.Repeat("\x12\x00", 600<<10))),
		},
		{
			name:  "many owners in protobuf",
			path:  "/api/v1/pods/a",
			serve: serveText(protobufMedia, "k8s\x00"+protobufField(2, protobufField(1, strings.Repeat("\x6a\x00", 600<<10)))),
		},
		{name: "endless space", path: "/api/v1/pods?watch=true", serve: serveRepeated(jsonMedia, "", " ")},
		{
			name:  "long protobuf event",
			path:  "/api/v1/pods?watch=1",
			serve: serveRepeated(protobufMedia+";stream=watch", "\x00\x00\x00\x01a\xff\xff\xff\xff", "a"),
		},
		{name: "unknown events", path: "/api/v1/pods?watch=1", serve: serveRepeated("application/yaml", "", "{}\n---\n")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := getBody(t.Context(), t, configOf(t, tt.serve), tt.path)
			if !errors.Is(err, kubeclient.ErrResponseTooLarge) {
				t.Errorf("got error %v, want %v", err, kubeclient.ErrResponseTooLarge)
			}
		})
	}
}

// TestOrdinaryObjectsAreDelivered checks that objects whose strings look like protobuf messages or
// are large arrive unchanged.
func TestOrdinaryObjectsAreDelivered(t *testing.T) {
	holder := "\xff is not a message"
	leaseObject := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	lease, err := leaseObject.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	mapObject := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": strings.Repeat("\x00", 1<<20)}}
	configMap, err := mapObject.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "k8s\x00" + protobufField(2, string(lease)),
		"k8s\x00" + protobufField(2, string(configMap))} {
		got, err := getBody(t.Context(), t, configOf(t, serveText(protobufMedia, want)), "/api/v1/namespaces/a/b/c")
		if err != nil || string(got) != want {
			t.Errorf("got %d bytes and error %v, want %d bytes", len(got), err, len(want))
		}
	}
}

// TestWatchDeliversAnyNumberOfEvents checks that the limits apply to each event and not to the
// whole watch.
func TestWatchDeliversAnyNumberOfEvents(t *testing.T) {
	const events = 40
	value := strings.Repeat(`x}\"`, 128<<10)
	for media, event := range map[string]string{
		jsonMedia:     `{"a":["` + value + `"]}` + "\n",
		protobufMedia: "\x00\x08\x00\x00" + value,
	} {
		config := configOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			for range events {
				_, _ = io.WriteString(w, event)
			}
		})
		text, err := getBody(t.Context(), t, config, "/api/v1/pods?watch=true")
		if err != nil || len(text) != events*len(event) {
			t.Errorf("%s: got %d bytes and error %v, want %d bytes", media, len(text), err, events*len(event))
		}
	}
}

// TestUnfinishedResponsesDoNotBlockOtherGroups lets the server of one group never finish its large
// responses.
func TestUnfinishedResponsesDoNotBlockOtherGroups(t *testing.T) {
	const attackers = 20
	large := make([]byte, 2<<20)
	var arrived sync.WaitGroup
	arrived.Add(attackers)
	config := configOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(large)
		if strings.HasPrefix(r.URL.Path, "/apis/hostile.example/") {
			_ = http.NewResponseController(w).Flush()
			arrived.Done()
			<-r.Context().Done()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for range attackers {
		group.Go(func() {
			if _, err := getBody(ctx, t, config, "/apis/hostile.example/v1/a"); err == nil {
				t.Error("GET /apis/hostile.example/v1/a = nil, want an error about the endless response")
			}
		})
	}
	arrived.Wait()
	text, err := getBody(t.Context(), t, config, "/apis/apps/v1/deployments")
	if err != nil || len(text) != len(large) {
		t.Errorf("got %d bytes and error %v, want %d bytes", len(text), err, len(large))
	}
}
