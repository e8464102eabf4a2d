package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

const (
	perNamespace = 1000 // pods, independent of the total
	perNode      = 100  // pods
	perApp       = 100  // pods
	// spreadPlaces is the number of namespaces, nodes and labels that requests use in turn.
	spreadPlaces = 4
	// spreadStride is the distance of the pods of successive requests: a prime number, so that the
	// requests reach all pods.
	spreadStride = 7919
)

// growObjects sends the same requests as the number of objects grows. It restarts the server for
// each size.
func growObjects(env *bench, like *load, largest int) ([]*figure, error) {
	const objects = "stored pods"
	cost := &figure{
		file:   "curve-objects.svg",
		title:  "CPU per request with a response of constant size",
		xLabel: objects,
		yLabel: "CPU ms per request",
	}
	memory := &figure{file: "curve-memory.svg", title: "Memory of the process, including etcd", xLabel: objects, yLabel: "MiB"}
	restart := &figure{file: "curve-restart.svg", title: "CPU from start to ready, including etcd", xLabel: objects, yLabel: "CPU s"}
	socket := filepath.Join(env.dir, "etcd.sock")
	before := 0
	for _, objectCount := range []int{1000, 10000, 100000, 300000} {
		if objectCount > largest {
			break
		}
		flags := []string{"--embedded-etcd-listen-client-url=unix://" + socket, "--quota-backend-bytes=8589934592"}
		running, api, err := env.startAPIServer(like, "grown", flags...)
		if err != nil {
			return nil, err
		}
		running.objectCount = templates
		client := running.newClient()
		if before == 0 {
			running.runScenario(client, "seed")
		}
		stored, err := running.addPods(client, "unix://"+socket, before, objectCount)
		api.terminate()
		if err != nil {
			return nil, err
		}
		before = objectCount
		if running, api, err = env.startAPIServer(like, "grown", flags...); err != nil {
			return nil, err
		}
		client = running.newClient()
		x := float64(objectCount)
		restart.curve("restart").add(x, running.readUsage().cpu["apiserver"])
		memory.floorCurve("bytes stored").add(x, float64(stored)/(1<<20))
		running.recordMemory(memory, x, "after a restart")
		err = running.measureRequestsAt(env, client, cost, memory, objectCount)
		api.terminate()
		if err != nil {
			return nil, err
		}
	}
	return []*figure{cost, memory, restart}, nil
}

// measureRequestsAt measures the same requests with n objects against a server and its floor, a
// process that answers with recorded responses of the server (see startFloor).
func (l *load) measureRequestsAt(b *bench, c *http.Client, cost, memory *figure, objectCount int) error {
	floorLoad, floor, err := b.startFloor(l)
	if err != nil {
		return err
	}
	defer floor.terminate()
	// groupAt returns the number of a namespace, node or label with size pods. Successive i spread
	// over all pods: with 4,000 pods and a size of 100, the numbers are 0, 10, 20, 30, 0 and so on.
	groupAt := func(i, size int) int { return i % spreadPlaces * (objectCount / size / spreadPlaces) }
	for _, query := range []struct {
		name string
		path func(i int) string
	}{
		{"LIST the 1,000 pods of a namespace", func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/grown-%d/pods?resourceVersion=0", groupAt(i, perNamespace))
		}},
		{"page of 500", func(int) string { return "/api/v1/pods?limit=500" }},
		{"LIST the 100 pods of a label", func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&labelSelector=app%%3Dgrown-%d", groupAt(i, perApp))
		}},
		{"LIST the 100 pods of a node", func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%%3Dgrown-%d", groupAt(i, perNode))
		}},
		{"GET", func(i int) string {
			pod := i * spreadStride % objectCount
			return fmt.Sprintf("/api/v1/namespaces/grown-%d/pods/pod-%07d", pod/perNamespace, pod)
		}},
	} {
		for _, side := range []*load{l, floorLoad} {
			run := *side
			run.results = nil
			client := run.newClient()
			for i := range spreadPlaces { // fills the floor and the caches
				if code, body, err := run.request(client, http.MethodGet, query.path(i), "", nil, run.accept); err != nil ||
					code != http.StatusOK {
					return fmt.Errorf("%s: %d %.200s %w", query.name, code, body, err)
				}
			}
			run.measureRequests(client, query.name, 4, query.path, run.accept)
			client.CloseIdleConnections()
			cost.curveOf(query.name, side == floorLoad).add(float64(objectCount), run.lastResult("cpu_ms_per_op"))
		}
	}
	l.measureGrownPatches(c, cost, objectCount)
	// List everything once in each form.
	for _, accept := range listMediaTypes {
		if err := l.discardResponse(c, "/api/v1/pods?resourceVersion=0", accept); err != nil {
			return err
		}
	}
	l.recordMemory(memory, float64(objectCount), "after lists of all in all forms")
	time.Sleep(15 * time.Second) // the runtime returns free memory gradually
	l.recordMemory(memory, float64(objectCount), "15 s later")
	return nil
}

// measureGrownPatches measures patches of n added pods.
func (l *load) measureGrownPatches(client *http.Client, cost *figure, objectCount int) {
	before := l.readUsage()
	ops, secs, lat, errs := l.runForDuration(4, func(i int) error {
		pod := i * spreadStride % objectCount
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano())
		code, out, err := l.request(client, http.MethodPatch,
			fmt.Sprintf("/api/v1/namespaces/grown-%d/pods/pod-%07d", pod/perNamespace, pod),
			"application/merge-patch+json", body, l.accept)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("patch: %d %.300s", code, out)
		}
		return err
	})
	l.addResult("patch", before, ops, secs, lat, map[string]any{"errors": errs})
	cost.curve("merge patch").add(float64(objectCount), l.lastResult("cpu_ms_per_op"))
}

// recordMemory adds the resident memory to the figure.
func (l *load) recordMemory(memory *figure, x float64, when string) {
	u := l.readUsage()
	memory.curve(when).add(x, u.resident["apiserver"])
	memory.curve(when+", anonymous memory").add(x, u.anonymous["apiserver"])
}
