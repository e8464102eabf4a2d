// Package apitest is a small API server for tests of the service: it keeps core objects in memory,
// and gets, lists and watches them over HTTP. Its watches can be delayed, like those of a busy
// server. The server stops when the test ends.
package apitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Server is an API server.
type Server struct {
	t      testing.TB
	server *httptest.Server

	mu                sync.Mutex    // leaf lock
	eventAdded        chan struct{} // closed and replaced when an event is added
	revision          int
	objects           map[objectKey]object
	events            []event
	deliverableEvents int  // number of events that watches deliver; -1 for all
	gets              int  // number of requests for single objects
	down              bool // all requests except health checks fail
}

// objectKey identifies an object.
type objectKey struct{ resource, namespace, name string }

// object is a decoded JSON object.
type object = map[string]any

// event is a change of an object.
type event struct {
	key    objectKey
	kind   string // type of the watch event, such as "ADDED"
	object object
}

// New starts a server.
func New(t testing.TB) *Server {
	server := &Server{t: t, objects: map[objectKey]object{}, eventAdded: make(chan struct{}), deliverableEvents: -1}
	server.server = httptest.NewServer(http.HandlerFunc(server.serve))
	t.Cleanup(server.server.Close)
	return server
}

// Config returns the configuration for clients.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.server.URL} }

// URL returns the address.
func (s *Server) URL() string { return s.server.URL }

// Object is an object with metadata.
type Object interface {
	metav1.Object
	runtime.Object
}

// Put creates or replaces an object.
func (s *Server) Put(resource string, o Object) {
	s.t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		s.t.Fatal(err)
	}
	o = o.DeepCopyObject().(Object)
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	raw, err := json.Marshal(o)
	if err != nil {
		s.t.Fatal(err)
	}
	var decoded object
	if err := json.Unmarshal(raw, &decoded); err != nil {
		s.t.Fatal(err)
	}
	key := objectKey{resource, o.GetNamespace(), o.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "ADDED"
	if s.objects[key] != nil {
		kind = "MODIFIED"
	}
	s.objects[key] = decoded
	s.recordEvent(key, kind, decoded)
}

// Delete removes an object.
func (s *Server) Delete(resource, namespace, name string) {
	key := objectKey{resource, namespace, name}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.objects[key]
	if last == nil {
		s.t.Errorf("%v does not exist, want it to be deleted", key)
		return
	}
	delete(s.objects, key)
	meta := maps.Clone(last["metadata"].(object))
	last = maps.Clone(last)
	last["metadata"] = meta
	s.recordEvent(key, "DELETED", last)
}

// recordEvent adds an event and sets its revision. The caller holds mu.
func (s *Server) recordEvent(key objectKey, kind string, obj object) {
	s.revision++
	obj["metadata"].(object)["resourceVersion"] = strconv.Itoa(s.revision)
	s.events = append(s.events, event{key, kind, obj})
	s.wakeWatches()
}

// wakeWatches wakes the watches. The caller holds mu.
func (s *Server) wakeWatches() {
	close(s.eventAdded)
	s.eventAdded = make(chan struct{})
}

// HoldWatches delays later events of watches until release.
func (s *Server) HoldWatches() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliverableEvents = len(s.events)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deliverableEvents = -1
		s.wakeWatches()
	}
}

// SetDown makes the server fail all requests except health checks.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Gets returns the number of requests for single objects.
func (s *Server) Gets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// serve serves all requests. It fails them while the server is down, except for health checks.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		return
	}
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	key, ok := parsePath(r.URL.Path)
	switch {
	case !ok || r.Method != http.MethodGet:
		http.NotFound(w, r)
	case key.name != "":
		s.get(w, r, key)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, key)
	default:
		s.list(w, r, key)
	}
}

// parsePath splits /api/v1[/namespaces/NS]/RESOURCE[/NAME].
func parsePath(path string) (key objectKey, ok bool) {
	rest, ok := strings.CutPrefix(path, "/api/v1/")
	parts := strings.Split(rest, "/")
	if len(parts) > 2 && parts[0] == "namespaces" {
		key.namespace = parts[1]
		parts = parts[2:]
	}
	key.resource = parts[0]
	if len(parts) > 1 {
		key.name = parts[1]
	}
	return key, ok && len(parts) <= 2
}

// get writes an object, or a Status with code 404.
func (s *Server) get(w http.ResponseWriter, r *http.Request, key objectKey) {
	s.mu.Lock()
	s.gets++
	found := inRequestedForm(r, s.objects[key])
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if found == nil {
		w.WriteHeader(http.StatusNotFound)
		found = object{
			"kind":       "Status",
			"apiVersion": "v1",
			"status":     "Failure",
			"reason":     "NotFound",
			"code":       404,
			"message":    key.resource + " " + key.name + " not found",
		}
	}
	writeJSON(w, found)
}

// list writes the selected objects of a resource.
func (s *Server) list(w http.ResponseWriter, r *http.Request, key objectKey) {
	s.mu.Lock()
	items := []object{}
	for each, o := range s.objects {
		if isSelected(r, key, each, o) {
			items = append(items, inRequestedForm(r, o))
		}
	}
	list := object{
		"kind":       listKinds()[key.resource],
		"apiVersion": "v1",
		"metadata":   object{"resourceVersion": strconv.Itoa(s.revision)},
		"items":      items,
	}
	s.mu.Unlock()
	if wantsMetadataOnly(r) {
		list["kind"] = "PartialObjectMetadataList"
		list["apiVersion"] = "meta.k8s.io/v1"
	}
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, list)
}

// listKinds returns the kinds of lists by resource.
func listKinds() map[string]string {
	return map[string]string{
		"nodes":           "NodeList",
		"pods":            "PodList",
		"secrets":         "SecretList",
		"serviceaccounts": "ServiceAccountList",
	}
}

// watch streams the events after a revision. Revisions begin at 1 and each belongs to one event, so
// the event of a revision has the index revision-1.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, key objectKey) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		from = 0
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		s.mu.Lock()
		changed := s.eventAdded
		end := len(s.events)
		if s.deliverableEvents >= 0 {
			end = s.deliverableEvents
		}
		var newEvents []event
		if from < end {
			newEvents = slices.Clone(s.events[from:end])
			from = end
		}
		s.mu.Unlock()
		for _, e := range newEvents {
			if isSelected(r, key, e.key, e.object) {
				writeJSON(w, object{"type": e.kind, "object": inRequestedForm(r, e.object)})
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// writeJSON writes JSON. It ignores errors, because the client may have gone.
func writeJSON(w http.ResponseWriter, body any) {
	_ = json.NewEncoder(w).Encode(body)
}

// isSelected reports whether a list or watch of a collection includes the object o with a key.
func isSelected(r *http.Request, collection, key objectKey, o object) bool {
	inCollection := key.resource == collection.resource &&
		(collection.namespace == "" || key.namespace == collection.namespace)
	desired, hasSelector := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "type=")
	return inCollection && (!hasSelector || o["type"] == desired)
}

// wantsMetadataOnly reports whether the client requests only the metadata of objects.
func wantsMetadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// inRequestedForm returns an object in the form that the client requested.
func inRequestedForm(r *http.Request, o object) object {
	if o == nil || !wantsMetadataOnly(r) {
		return o
	}
	return object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
}
