// Package apitest is the part of an API server that package policy needs, for tests: lists and
// watches over HTTP of objects that the test stores. It can drop its history, and end its watches.
package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is an API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// event is an encoded watch event of a resource.
type event struct {
	resource string
	revision int64
	line     []byte
}

// Server is an API server for tests.
type Server struct {
	*httptest.Server

	mu                sync.Mutex
	revision          int64
	objects           map[string]map[string]json.RawMessage // by resource and namespace/name
	events            []event
	oldest            int64          // watches from earlier revisions get an error
	eventAdded        chan struct{}  // closed and replaced when an event is added
	endWatches        chan struct{}  // closed to end watches
	listCounts        map[string]int // number of lists by resource
	closed            bool           // lists fail with 503
	disabledVersions  []string       // versions whose requests fail with disabledCode
	disabledCode      int
	closeConnections  bool // connections are closed without a response
	closedConnections int  // number of closed connections
}

// New starts a server.
func New() *Server {
	server := &Server{
		revision:   10,
		objects:    map[string]map[string]json.RawMessage{},
		eventAdded: make(chan struct{}),
		endWatches: make(chan struct{}),
		listCounts: map[string]int{},
	}
	server.Server = httptest.NewServer(http.HandlerFunc(server.serve))
	return server
}

// Close ends all watches and the server.
func (s *Server) Close() {
	s.EndWatches(false)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Server.Close()
}

// EndWatches ends all watches. With lost, the history so far is dropped.
func (s *Server) EndWatches(lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost {
		s.revision++
		s.oldest = s.revision
		s.events = nil
	}
	close(s.endWatches)
	s.endWatches = make(chan struct{})
}

// Lists returns how often a resource was listed.
func (s *Server) Lists(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listCounts[resource]
}

// Put stores an object and returns its revision.
func (s *Server) Put(resource string, o Object) int64 {
	return s.changeObject(resource, o, change{notify: true})
}

// Delete removes an object and returns the revision.
func (s *Server) Delete(resource string, o Object) int64 {
	return s.changeObject(resource, o, change{deleted: true, notify: true})
}

// DeleteUnseen removes an object without a watch event.
func (s *Server) DeleteUnseen(resource string, o Object) {
	s.changeObject(resource, o, change{deleted: true})
}

// change says how an object changes.
type change struct {
	deleted bool // the object is deleted, otherwise stored
	notify  bool // watches receive the change
}

// changeObject stores or deletes an object and returns the new revision.
func (s *Server) changeObject(resource string, object Object, request change) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	object.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	gvks, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	object.GetObjectKind().SetGroupVersionKind(gvks[0])
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	key := object.GetNamespace() + "/" + object.GetName()
	kind := "ADDED"
	_, existed := s.objects[resource][key]
	switch {
	case request.deleted:
		kind = "DELETED"
		delete(s.objects[resource], key)
	default:
		if existed {
			kind = "MODIFIED"
		}
		if s.objects[resource] == nil {
			s.objects[resource] = map[string]json.RawMessage{}
		}
		s.objects[resource][key] = data
	}
	if request.notify {
		s.addEvent(resource, fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, data))
	}
	return s.revision
}

// Bookmark sends the current revision to the watches of a resource.
func (s *Server) Bookmark(resource, apiVersion, kind string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.addEvent(resource, fmt.Appendf(nil,
		`{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d"}}}`+"\n",
		apiVersion, kind, s.revision))
	return s.revision
}

// addEvent adds an event at the current revision and wakes the watches. The caller holds mu.
func (s *Server) addEvent(resource string, line []byte) {
	s.events = append(s.events, event{resource, s.revision, line})
	close(s.eventAdded)
	s.eventAdded = make(chan struct{})
}

// BookmarkAt sends a given revision to the watches of a resource.
func (s *Server) BookmarkAt(resource, apiVersion, kind, revision string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.addEvent(resource, fmt.Appendf(nil,
		`{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":%q}}}`+"\n", apiVersion,
		kind, revision))
}

// RemoveVersions removes versions of the API, such as "v1beta2", for later requests.
func (s *Server) RemoveVersions(versions ...string) { s.disableVersions(http.StatusNotFound, versions) }

// ForbidVersions makes the server reject later requests for versions of the API with 403.
func (s *Server) ForbidVersions(versions ...string) {
	s.disableVersions(http.StatusForbidden, versions)
}

func (s *Server) disableVersions(code int, versions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disabledVersions = versions
	s.disabledCode = code
}

func (s *Server) versionDisabled(version string) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disabledCode, slices.Contains(s.disabledVersions, version)
}

// ResetRevision sets the server to an older revision, as after a restore of its store, with its
// current objects.
func (s *Server) ResetRevision(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = revision
	s.events = nil
}

// CloseConnections sets whether the server closes connections without a response.
func (s *Server) CloseConnections(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeConnections = on
}

// ClosedConnections returns how many requests got no response.
func (s *Server) ClosedConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closedConnections
}

// closesConnection reports whether the current request gets no response, and counts it if so.
func (s *Server) closesConnection() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closeConnections {
		s.closedConnections++
	}
	return s.closeConnections
}

// serve serves list and watch requests of all resources.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	// 1. Fail as the test demands.
	if s.closesConnection() {
		panic(http.ErrAbortHandler) // closes the connection
	}
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := parts[len(parts)-1]
	if resource == "readyz" {
		return
	}
	if code, off := s.versionDisabled(parts[len(parts)-2]); off {
		w.WriteHeader(code)
		return
	}

	// 2. Serve a watch.
	if r.URL.Query().Get("watch") == "true" {
		s.watch(w, r, resource)
		return
	}

	// 3. Serve a list or a page of it.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.listCounts[resource]++
	kinds := map[string]string{
		"roles":               "Role",
		"clusterroles":        "ClusterRole",
		"rolebindings":        "RoleBinding",
		"clusterrolebindings": "ClusterRoleBinding",
		"pods":                "Pod",
		"persistentvolumes":   "PersistentVolume",
		"volumeattachments":   "VolumeAttachment",
		"resourceslices":      "ResourceSlice",
	}
	apiVersion := strings.TrimPrefix(strings.Join(parts[1:len(parts)-1], "/"), "/")
	items := []json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(s.objects[resource])) {
		items = append(items, s.objects[resource][key])
	}
	meta := map[string]any{"resourceVersion": strconv.FormatInt(s.revision, 10)}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": apiVersion,
		"kind":       kinds[resource] + "List",
		"metadata":   meta,
		"items":      items,
	})
}

// watch streams the events of a resource after a revision.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	after, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	s.mu.Lock()
	ended, now := s.endWatches, s.revision
	s.mu.Unlock()
	if after > now {
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Timeout","code":504,"details":{"causes":[{"reason":%q}]}}`, metav1.CauseTypeResourceVersionTooLarge)
		return
	}
	w.WriteHeader(http.StatusOK)
	for {
		s.mu.Lock()
		wake := s.eventAdded
		oldest := s.oldest
		var lines [][]byte
		for _, ev := range s.events {
			if ev.revision > after && ev.resource == resource {
				lines = append(lines, ev.line)
			}
		}
		now := s.revision
		s.mu.Unlock()
		if after < oldest {
			const expired = `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}}`
			lines = [][]byte{[]byte(expired + "\n")}
		}
		for _, l := range lines {
			_, _ = w.Write(l)
		}
		w.(http.Flusher).Flush()
		if after < oldest {
			return
		}
		after = now
		select {
		case <-wake:
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}
