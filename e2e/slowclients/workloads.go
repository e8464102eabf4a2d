package slowclients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"
)

const (
	// smallObject and largeObject are about the size of one ConfigMap in a list, in bytes.
	smallObject, largeObject = 10 << 10, 100 << 10
	// uploadSize is the size of a created object, just below the limit of ConfigMaps.
	uploadSize = 1000 << 10
	// watchers is the number of watches that run during the lists.
	watchers = 3
)

// cell is one combination of a rate, a client and a workload.
type cell struct {
	rate     int // bytes per second
	kind     *clientKind
	workload *workload
	linkTime time.Duration // transfer time of its bytes on the link
}

func (c *cell) String() string {
	return fmt.Sprintf("%d KB/s, %s, %s", c.rate/1000, c.kind.name, c.workload.name)
}

// transferBytes returns the number of bytes that pass during the time of the cell.
func (c *cell) transferBytes() int { return int(c.linkTime.Seconds() * float64(c.rate)) }

// cellRun is a cell that runs against a server.
type cellRun struct {
	*cell
	client client
	server *server
	id     string // prefix of its objects' names
}

// workload is the work of a client. Its error says what is incomplete.
type workload struct {
	name string
	run  func(context.Context, *cellRun) error
	// goOnly workloads need several requests at a time that curl cannot make on one connection.
	goOnly bool
}

var (
	listOnce           = &workload{"one list", func(ctx context.Context, r *cellRun) error { return r.readLists(ctx, 1) }, false}
	listThirtyTimes    = &workload{"30 lists", func(ctx context.Context, r *cellRun) error { return r.readLists(ctx, 30) }, false}
	listAndWatch       = &workload{"10 lists and watches", listsAndWatches, true}
	watchInitialEvents = &workload{"watch with initial events", initialEvents, false}
	uploadObject       = &workload{"upload", runUpload, false}
)

// readLists reads n lists concurrently. Together they have the bytes of the cell.
func (r *cellRun) readLists(ctx context.Context, reads int) error {
	namespace, items := "small", r.transferBytes()/reads/smallObject
	if reads == 1 {
		namespace, items = "large", r.transferBytes()/largeObject
	}
	items = max(items, 1)
	paths := make([]string, reads)
	for i := range paths {
		paths[i] = configMapsPath(namespace) + "?labelSelector=" + url.QueryEscape(fmt.Sprintf("n<%d",
			items)) + fmt.Sprintf("&list=%d", i)
	}
	var mu sync.Mutex
	whole := 0
	var failed error
	r.client.readLists(ctx, paths, func(body io.Reader, err error) {
		got := 0
		if err == nil {
			got, err = countItems(body)
		}
		if err == nil && got != items {
			err = fmt.Errorf("list: got %d items, want %d", got, items)
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			whole++
		} else if failed == nil {
			failed = err
		}
	})
	if failed != nil {
		return fmt.Errorf("%d of %d lists: %w", whole, reads, failed)
	}
	return nil
}

// listsAndWatches reads lists while watches on the same connection wait. Each watch must deliver an
// object that is created during the lists, and one that is created after them.
func listsAndWatches(ctx context.Context, running *cellRun) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	version, err := running.server.createForCell(ctx, "watched", running.id+"-before", running.id, nil)
	if err != nil {
		return err
	}
	path := configMapsPath("watched") + "?watch=1&labelSelector=cell%3D" + running.id + "&resourceVersion=" + version
	first := make(chan struct{}, watchers)
	ended := make(chan error, watchers)
	for range watchers {
		go func() {
			ended <- running.client.watch(ctx, path, func(line []byte) bool {
				if bytes.Contains(line, []byte(running.id+"-during")) {
					first <- struct{}{}
				}
				return !bytes.Contains(line, []byte(running.id+"-after"))
			})
		}()
	}
	lists := make(chan error, 1)
	go func() { lists <- running.readLists(ctx, 10) }()
	if _, err = running.server.createForCell(ctx, "watched", running.id+"-during", running.id, nil); err != nil {
		return err
	}
	for range watchers {
		select {
		case <-first:
		case err := <-ended:
			return fmt.Errorf("during the lists: %w", err)
		}
	}
	failed := <-lists
	_, err = running.server.createForCell(ctx, "watched", running.id+"-after", running.id, nil)
	failed = errors.Join(failed, err)
	for range watchers {
		failed = errors.Join(failed, <-ended)
	}
	return failed
}

// initialEvents watches with sendInitialEvents until the bookmark that ends them.
func initialEvents(ctx context.Context, r *cellRun) error {
	items, got := max(1, r.transferBytes()/largeObject), 0
	path := configMapsPath("large") +
		"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&labelSelector=" +
		url.QueryEscape(fmt.Sprintf("n<%d", items))
	var failed error
	err := r.client.watch(ctx, path, func(line []byte) bool {
		var event struct {
			Type   string
			Object struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		failed = json.Unmarshal(line, &event)
		if failed != nil {
			return false
		}
		if event.Type == "ADDED" {
			got++
		}
		return event.Type == "ADDED" ||
			event.Type == "BOOKMARK" && event.Object.Metadata.Annotations["k8s.io/initial-events-end"] != "true"
	})
	if err = errors.Join(err, failed); err != nil || got != items {
		return fmt.Errorf("%d of %d initial events: %w", got, items, err)
	}
	return nil
}

// runUpload creates an object as large as the cell's bytes, at most uploadSize.
func runUpload(ctx context.Context, r *cellRun) error {
	return r.client.create(ctx, configMapsPath("uploads"), configMap(r.id, nil, min(r.transferBytes(), uploadSize)))
}

// configMapsPath returns the path of the ConfigMaps of a namespace.
func configMapsPath(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/configmaps"
}

// configMap returns a ConfigMap of about size bytes, as JSON.
func configMap(name string, labels map[string]string, size int) []byte {
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "labels": labels},
		"data": map[string]string{"text": string(bytes.Repeat([]byte("0123456789abcdef"), size/16))},
	})
	if err != nil {
		panic(err) // cannot happen for strings
	}
	return data
}
