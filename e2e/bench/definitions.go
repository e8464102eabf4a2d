package main

import (
	"fmt"
	"net/http"
	"time"
)

// The number of measured definitions, and the number with which the server restarts.
const (
	fewDefinitions  = 200
	manyDefinitions = 5000
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// measureManyDefinitions measures the cost of definitions with 60 fields, one by one, and the start
// of a server with many of them.
func measureManyDefinitions(like *load, bin string) error {
	started, err := newBench(bin)
	if err != nil {
		return err
	}
	defer started.close()
	args := []string{"--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount"}
	api, err := started.startAPIServerProcess("definitions", args...)
	if err != nil {
		return err
	}
	defer func() { api.terminate() }()
	running := started.newLoad(like, "apiserver", api.url, api, "admin")
	client := running.newClient()
	running.runScenario(client, "idle")
	few := *running
	few.objectCount, few.concurrency = fewDefinitions, 4
	few.measureDefinitions(client)
	few.runScenario(client, "idle")
	before, start := running.readUsage(), time.Now()
	rest := manyDefinitions - fewDefinitions
	lat, errs := runConcurrently(rest, 4, func(i int) error { return running.createDefinition(client, fewDefinitions+i) })
	running.addResult("the rest, each used at once", before, rest, time.Since(start).Seconds(), lat,
		map[string]any{"errors": errs}) // an error if not served
	api.terminate()
	again, err := started.startAPIServerProcess("definitions", args...)
	if err != nil {
		return err
	}
	api = again
	running = started.newLoad(like, "apiserver", api.url, api, "admin")
	fmt.Printf("with %d definitions: ready after %d ms\n", manyDefinitions, api.ready.Milliseconds())
	running.runScenario(client, "idle") // includes the CPU time since the start
	fmt.Printf("CPU until ready: %.2f s\n", running.readUsage().cpu["apiserver"])
	client = running.newClient()
	code, out, err := running.request(client, http.MethodGet,
		fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", (manyDefinitions-1)%20, manyDefinitions-1), "", nil,
		"application/json")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("the last definition is not served: %d %.300s %w", code, out, err)
	}
	time.Sleep(10 * time.Second) // memory settles
	running.runScenario(client, "idle")
	return nil
}

// createDefinition creates a definition and uses its resource.
func (l *load) createDefinition(c *http.Client, i int) error {
	if err := l.create(c, definitionsPath, string(widgetDefinition(i))); err != nil {
		return err
	}
	code, out, err := l.request(c, http.MethodGet, fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", i%20, i), "",
		nil, "application/json")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("definition %d is not served: %d %.300s", i, code, out)
	}
	return err
}
