package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

const (
	perNamespace = 1000 // pods, independent of the total
	perNode      = 100
	perApp       = 100
	// spreadPlaces is the number of namespaces, nodes and labels that requests use in turn.
	spreadPlaces = 4
)

// growObjects sends the same requests as the number of objects grows. It restarts the server for
// each size.
func growObjects(b *bench, like *load, largest int) ([]*figure, error) {
	const objects = "stored pods"
	cost := &figure{
		file:  "curve-objects.svg",
		title: "CPU per request with a response of constant size",
		x:     objects,
		y:     "CPU ms per request",
	}
	memory := &figure{file: "curve-memory.svg", title: "Memory of the process, including etcd", x: objects, y: "MiB"}
	restart := &figure{file: "curve-restart.svg", title: "CPU from start to ready, including etcd", x: objects, y: "CPU s"}
	socket := filepath.Join(b.dir, "etcd.sock")
	before := 0
	for _, n := range []int{1000, 10000, 100000, 300000} {
		if n > largest {
			break
		}
		flags := []string{"--embedded-etcd-listen-client-url=unix://" + socket, "--quota-backend-bytes=8589934592"}
		l, api, err := b.startAPIServer(like, "grown", flags...)
		if err != nil {
			return nil, err
		}
		l.objectCount = templates
		c := l.newClient()
		if before == 0 {
			l.runScenario(c, "seed")
		}
		stored, err := l.addPods(c, "unix://"+socket, before, n)
		api.terminate()
		if err != nil {
			return nil, err
		}
		before = n
		if l, api, err = b.startAPIServer(like, "grown", flags...); err != nil {
			return nil, err
		}
		c = l.newClient()
		x := float64(n)
		restart.curve("restart", false).add(x, l.readUsage().cpu["apiserver"])
		memory.curve("bytes stored", true).add(x, float64(stored)/(1<<20))
		l.recordMemory(memory, x, "after a restart")
		err = l.measureRequestsAt(b, c, cost, memory, n)
		api.terminate()
		if err != nil {
			return nil, err
		}
	}
	return []*figure{cost, memory, restart}, nil
}

// measureRequestsAt measures the same requests against a server and its floor with n objects.
func (l *load) measureRequestsAt(b *bench, c *http.Client, cost, memory *figure, n int) error {
	bare, floor, err := b.startFloor(l)
	if err != nil {
		return err
	}
	defer floor.terminate()
	// groupAt returns the number of a namespace, node or label with size pods. Successive i spread
	// over all pods.
	groupAt := func(i, size int) int { return i % spreadPlaces * (n / size / spreadPlaces) }
	for _, q := range []struct {
		name string
		path func(i int) string
	}{
		{"LIST a namespace's 1,000", func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/grown-%d/pods?resourceVersion=0", groupAt(i, perNamespace))
		}},
		{"page of 500", func(int) string { return "/api/v1/pods?limit=500" }},
		{"LIST a label's 100", func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&labelSelector=app%%3Dgrown-%d", groupAt(i, perApp))
		}},
		{"LIST a node's 100", func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%%3Dgrown-%d", groupAt(i, perNode))
		}},
		{"GET", func(i int) string {
			k := i * 7919 % n // the prime number spreads requests over the pods
			return fmt.Sprintf("/api/v1/namespaces/grown-%d/pods/pod-%07d", k/perNamespace, k)
		}},
	} {
		for _, side := range []*load{l, bare} {
			s := *side
			s.results = nil
			sc := s.newClient()
			for i := range spreadPlaces { // fills the floor and the caches
				if code, body, err := s.request(sc, http.MethodGet, q.path(i), "", nil, s.accept); err != nil ||
					code != http.StatusOK {
					return fmt.Errorf("%s: %d %.200s %w", q.name, code, body, err)
				}
			}
			s.measureRequests(sc, q.name, 4, q.path, s.accept)
			sc.CloseIdleConnections()
			cost.curve(q.name, side == bare).add(float64(n), s.lastResult("cpu_ms_per_op"))
		}
	}
	l.measureGrownPatches(c, cost, n)
	// List everything once in each form.
	for _, accept := range listMediaTypes {
		if err := l.discardResponse(c, "/api/v1/pods?resourceVersion=0", accept); err != nil {
			return err
		}
	}
	l.recordMemory(memory, float64(n), "after lists of all in all forms")
	time.Sleep(15 * time.Second) // the runtime returns free memory gradually
	l.recordMemory(memory, float64(n), "15 s later")
	return nil
}

// measureGrownPatches measures patches of n added pods.
func (l *load) measureGrownPatches(c *http.Client, cost *figure, n int) {
	b := l.readUsage()
	ops, secs, lat, errs := l.runForDuration(4, func(i int) error {
		k := i * 7919 % n // the prime number spreads requests over the pods
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano())
		code, out, err := l.request(c, http.MethodPatch,
			fmt.Sprintf("/api/v1/namespaces/grown-%d/pods/pod-%07d", k/perNamespace, k),
			"application/merge-patch+json", body, l.accept)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("patch: %d %.300s", code, out)
		}
		return err
	})
	l.addResult("patch", b, ops, secs, lat, map[string]any{"errors": errs})
	cost.curve("merge patch", false).add(float64(n), l.lastResult("cpu_ms_per_op"))
}

// recordMemory adds the resident memory to the figure.
func (l *load) recordMemory(memory *figure, x float64, when string) {
	u := l.readUsage()
	memory.curve(when, false).add(x, u.resident["apiserver"])
	memory.curve(when+", without pages of files", false).add(x, u.anonymous["apiserver"])
}
