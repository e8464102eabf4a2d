package main

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
)

// floor is a bare HTTPS server that sends the responses of another server from memory. It shows the
// cost of net/http without other work. It delivers a PATCH to all watchers as the recorded event
// with the patch's timestamp.
type floor struct {
	upstream string
	client   *http.Client

	mu        sync.RWMutex
	responses map[string]recordedResponse

	watching sync.Mutex
	watchers map[string]map[chan []byte]bool // by field selector; "" selects all pods
}

// recordedResponse is a response of the upstream server.
type recordedResponse struct {
	contentType string
	body        []byte
}

// serveFloor runs the floor as a program.
func serveFloor(args []string) error {
	fs := flag.NewFlagSet("floor", flag.ExitOnError)
	upstream := fs.String("upstream", "", "URL of the server whose responses are sent")
	cert, key := fs.String("cert", "", "client certificate for it"), fs.String("key", "", "its key")
	servingCert, servingKey := fs.String("tls-cert-file", "", ""), fs.String("tls-private-key-file", "", "")
	bind, port := fs.String("bind-address", "127.0.0.1", ""), fs.Int("secure-port", 0, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	f := &floor{
		upstream: *upstream, responses: map[string]recordedResponse{}, watchers: map[string]map[chan []byte]bool{},
		client: &http.Client{Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}},
			DisableCompression: true,
		}},
	}
	server := &http.Server{
		Addr:      fmt.Sprintf("%s:%d", *bind, *port),
		Handler:   f,
		TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert},
	}
	return server.ListenAndServeTLS(*servingCert, *servingKey)
}

// ServeHTTP implements http.Handler.
func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok")
	case r.Method == http.MethodPatch:
		f.patch(w, r)
	case r.URL.Query().Has("watch"):
		f.watch(w, r)
	default:
		a, err := f.fetchResponse(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", a.contentType)
		_, _ = w.Write(a.body)
	}
}

// fetchResponse returns the recorded response to a request, or records it from the upstream server.
func (f *floor) fetchResponse(r *http.Request) (recordedResponse, error) {
	id := r.URL.RequestURI() + " " + r.Header.Get("Accept")
	if strings.Contains(r.URL.Path, "/pods/") {
		id = "a pod " + r.Header.Get("Accept") // one recorded response serves for all pods
	}
	f.mu.RLock()
	recorded, ok := f.responses[id]
	f.mu.RUnlock()
	if ok {
		return recorded, nil
	}
	req, err := http.NewRequest(http.MethodGet, f.upstream+r.URL.RequestURI(), nil)
	if err != nil {
		return recorded, err
	}
	req.Header.Set("Accept", r.Header.Get("Accept"))
	resp, err := f.client.Do(req)
	if err != nil {
		return recorded, err
	}
	defer resp.Body.Close()
	recorded.contentType = resp.Header.Get("Content-Type")
	if recorded.body, err = io.ReadAll(resp.Body); err != nil {
		return recorded, err
	}
	f.mu.Lock()
	f.responses[id] = recorded
	f.mu.Unlock()
	return recorded, nil
}

// patch delivers a change of a pod to all watchers, with the timestamp in the body.
func (f *floor) patch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	get := r.Clone(r.Context())
	get.Method = http.MethodGet
	recorded, err := f.fetchResponse(get)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	// The event is the recorded pod with the stamp of the patch.
	i, j := bytes.Index(recorded.body, stampMarker)+len(stampMarker), bytes.Index(body, stampMarker)+len(stampMarker)
	stamp := body[j : j+bytes.IndexByte(body[j:], '"')]
	rest := recorded.body[i+bytes.IndexByte(recorded.body[i:], '"'):]
	frame := append([]byte(`{"type":"MODIFIED","object":`), recorded.body[:i]...)
	frame = append(append(frame, stamp...), bytes.TrimRight(rest, "\n")...)
	frame = append(frame, "}\n"...)
	f.watching.Lock()
	name := path.Base(r.URL.Path)
	for _, selected := range []string{"", "metadata.name=" + name, "spec.nodeName=" + nodeOf(name)} {
		for c := range f.watchers[selected] {
			select {
			case c <- frame:
			default: // drops the event of a slow watcher
			}
		}
	}
	f.watching.Unlock()
	w.Header().Set("Content-Type", strings.TrimSpace(recorded.contentType))
	_, _ = w.Write(recorded.body)
}

// nodeOf returns the node of a pod of the bench.
func nodeOf(pod string) string {
	var k int
	_, _ = fmt.Sscanf(pod, "pod-%d", &k)
	return fmt.Sprintf("node-%d", k%nodes)
}

// watch sends the events of selected pods until the client closes the request.
func (f *floor) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan []byte, 256)
	selected := r.URL.Query().Get("fieldSelector")
	f.watching.Lock()
	if f.watchers[selected] == nil {
		f.watchers[selected] = map[chan []byte]bool{}
	}
	f.watchers[selected][events] = true
	f.watching.Unlock()
	defer func() {
		f.watching.Lock()
		delete(f.watchers[selected], events)
		f.watching.Unlock()
	}()
	flusher, ok := w.(http.Flusher)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flusher.Flush()
	for {
		select {
		case frame := <-events:
			if _, err := w.Write(frame); err != nil {
				return
			}
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}
