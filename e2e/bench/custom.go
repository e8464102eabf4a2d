package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// customRounds is the number of rounds, in which custom resources and ConfigMaps alternate.
	customRounds = 5
	// customChunk is the number of objects of each side that a round creates.
	customChunk = 2000
	// customFields is the number of fields in the schema of the custom resource.
	customFields = 60
	// filledFields is the number of fields that an object has. It makes an object about 6 KB.
	filledFields = 20
)

// side is one of the two compared resources.
type side struct {
	name string
	path string             // of the group version
	kind string             // plural resource name
	body func(i int) []byte // returns the i-th object
}

// collection returns the path of the collection of the i-th object.
func (s *side) collection(i int) string {
	return fmt.Sprintf("%s/namespaces/bench-%d/%s", s.path, i%namespaces, s.kind)
}

// object returns the path of the i-th object.
func (s *side) object(i int) string { return fmt.Sprintf("%s/o-%05d", s.collection(i), i) }

// comparedSides returns ConfigMaps and custom resources.
func comparedSides() []side {
	return []side{
		{name: "config maps", path: "/api/v1", kind: "configmaps", body: configMap},
		{name: "custom resources", path: "/apis/bench.example/v1", kind: "gadgets", body: gadget},
	}
}

// gadgetDefinition returns a definition with a schema of 60 fields and five rules.
func gadgetDefinition() []byte {
	part := map[string]any{
		"type":        "object",
		"description": "Explains what the field does for its readers.",
		"properties": map[string]any{
			"name":  map[string]any{"type": "string", "maxLength": 63, "pattern": "^[a-z0-9-]+$"},
			"count": map[string]any{"type": "integer", "minimum": 0, "maximum": 1000},
			"note":  map[string]any{"type": "string", "maxLength": 256},
			"items": map[string]any{
				"type":     "array",
				"maxItems": 16,
				"items": map[string]any{"type": "object", "properties": map[string]any{
					"key":   map[string]any{"type": "string", "maxLength": 64},
					"value": map[string]any{"type": "string", "maxLength": 64},
				}},
			},
		},
	}
	properties := map[string]any{"size": map[string]any{"type": "integer"}}
	for f := range customFields {
		properties[fmt.Sprintf("field%d", f)] = part
	}
	var rules []any
	for _, r := range []string{
		"self.size >= 0",
		"!has(self.field0) || self.field0.count <= self.size",
		"!has(self.field1) || self.field1.name != self.field0.name",
		"!has(self.field2) || self.field2.items.all(i, i.key != '')",
		"self.size == oldSelf.size || self.size > oldSelf.size",
	} {
		rules = append(rules, map[string]any{"rule": r, "message": "is not as it should be"})
	}
	spec := map[string]any{
		"type":                     "object",
		"required":                 []string{"size"},
		"properties":               properties,
		"x-kubernetes-validations": rules,
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "gadgets.bench.example"},
		"spec": map[string]any{
			"group": "bench.example",
			"scope": "Namespaced",
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
			"versions": []any{map[string]any{
				"name":         "v1",
				"served":       true,
				"storage":      true,
				"subresources": map[string]any{"status": map[string]any{}},
				"additionalPrinterColumns": []any{
					map[string]any{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
					map[string]any{"name": "First", "type": "string", "jsonPath": ".spec.field0.name"},
					map[string]any{"name": "Key", "type": "string", "jsonPath": ".spec.field2.items[0].key"},
					map[string]any{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
				},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type":       "object",
					"properties": map[string]any{"spec": spec},
				}},
			}},
		},
	})
	check(err)
	return data
}

// gadget returns the i-th custom resource.
func gadget(i int) []byte {
	r := rand.New(rand.NewSource(int64(i)))
	spec := map[string]any{"size": 1000}
	for f := range filledFields {
		spec[fmt.Sprintf("field%d", f)] = map[string]any{
			"name": fmt.Sprintf("part-%d-%d", f, i), "count": r.Intn(1000), "note": fmt.Sprintf("%x%x", r.Int63(), r.Int63()),
			"items": []any{
				map[string]any{"key": "first", "value": fmt.Sprintf("%x", r.Int63())},
				map[string]any{"key": "second", "value": fmt.Sprintf("%x", r.Int63())},
			},
		}
	}
	return customBody("bench.example/v1", "Gadget", i, "spec", spec)
}

// configMap returns a ConfigMap of the same size and with the same number of owned fields as a
// gadget.
func configMap(i int) []byte {
	r := rand.New(rand.NewSource(int64(i)))
	data := map[string]any{}
	for f := range filledFields * 15 / 4 {
		data[fmt.Sprintf("field%d.conf", f)] = fmt.Sprintf("%x%x", r.Int63(), r.Int63())
	}
	return customBody("v1", "ConfigMap", i, "data", data)
}

// customBody returns the i-th object of a kind, with its content in a field.
func customBody(apiVersion, kind string, i int, field string, content map[string]any) []byte {
	data, err := json.Marshal(map[string]any{"apiVersion": apiVersion, "kind": kind, field: content, "metadata": map[string]any{
		"name": fmt.Sprintf("o-%05d", i), "namespace": fmt.Sprintf("bench-%d", i%namespaces),
		"labels": map[string]any{"app": fmt.Sprintf("app-%d", i%50)}, "annotations": map[string]any{"bench/stamp": "0"},
	}})
	check(err)
	return data
}

// compareCustomResources compares custom resources with ConfigMaps of the same size in alternating
// rounds.
func compareCustomResources(like *load, bin string) error {
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	api, err := b.startAPIServerProcess("custom", "--authorization-mode=AlwaysAllow",
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	defer api.terminate()
	settings := b.newLoad(like, "apiserver", api.url, api, "admin")
	settings.objectCount, settings.duration = customRounds*customChunk, 4*time.Second
	client := settings.newClient()
	if err := settings.createGadgetDefinition(client); err != nil {
		return err
	}
	t := sideCosts{byOperation: map[string][2][]float64{}}
	for round := range customRounds {
		t.measureBoth("create", func(s *side) float64 { return settings.createChunk(client, s, round*customChunk, customChunk) })
	}
	time.Sleep(3 * time.Second) // the cache catches up
	for range customRounds {
		for _, list := range []struct{ name, query, accept string }{
			{"list", "?resourceVersion=0", "application/json"},
			{"list, table", "?resourceVersion=0", tableMedia},
			{"page of 500", "?limit=500", "application/json"},
		} {
			t.measureBoth(list.name, func(s *side) float64 {
				return settings.measureGets(1, list.name+" "+s.name, list.accept, func(int) string {
					return s.path + "/" + s.kind + list.query
				})
			})
		}
		t.measureBoth("get", func(s *side) float64 {
			return settings.measureGets(settings.concurrency, "get "+s.name, "application/json", func(i int) string {
				return s.object(i % settings.objectCount)
			})
		})
		t.measureBoth("patch", func(s *side) float64 { return settings.measurePatches(client, s) })
	}
	for range 2 {
		t.measureBoth("watch, a delivery", func(s *side) float64 {
			w := *settings
			w.watchers, w.rate, w.duration = 200, 20, 8*time.Second
			w.measureWatches(client, "watch "+s.name, watchedObjects{s.path + "/" + s.kind, s.object},
				func(int) string { return s.path + "/" + s.kind + "?watch=1" })
			return w.lastResult("cpu_ms_per_op")
		})
	}
	t.print()
	return nil
}

// createGadgetDefinition creates the namespaces and the definition of the custom resources.
func (l *load) createGadgetDefinition(client *http.Client) error {
	for i := range namespaces {
		if err := l.create(client, "/api/v1/namespaces",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench-%d"}}`, i)); err != nil {
			return err
		}
	}
	return l.create(client, definitionsPath, string(gadgetDefinition()))
}

// sideCosts holds the measured costs of both sides, by operation.
type sideCosts struct {
	names       []string                // of the operations, in order of their first measurement
	byOperation map[string][2][]float64 // measured values of each side
}

// measureBoth measures an operation for both sides. measure returns the cost in ms of CPU time. The
// order of the sides alternates between calls.
func (t *sideCosts) measureBoth(name string, measure func(*side) float64) {
	sides := comparedSides()
	costs, isKnown := t.byOperation[name]
	if !isKnown {
		t.names = append(t.names, name)
	}
	order := []int{0, 1}
	if len(costs[0])%2 == 1 {
		slices.Reverse(order)
	}
	for _, i := range order {
		costs[i] = append(costs[i], measure(&sides[i]))
	}
	t.byOperation[name] = costs
}

// print prints the medians as a table.
func (t *sideCosts) print() {
	var rows []string
	for _, name := range t.names {
		v := t.byOperation[name]
		a, b := median(v[0]), median(v[1])
		rows = append(rows, fmt.Sprintf("| %s | %.3f | %.3f | %.2f |", name, a, b, b/a))
	}
	fmt.Printf("\n| CPU ms | config maps | custom resources | ratio |\n|---|---|---|---|\n%s\n", strings.Join(rows, "\n"))
}

// median returns the median, or 0 of no values.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}

// lastResult returns a number of the last result, or 0.
func (l *load) lastResult(key string) float64 {
	if len(l.results) == 0 {
		return 0
	}
	v, _ := l.results[len(l.results)-1][key].(float64)
	return v
}

// createChunk creates n objects and returns the CPU time of each in milliseconds.
func (l *load) createChunk(c *http.Client, s *side, from, n int) float64 {
	before, start := l.readUsage(), time.Now()
	latencies, errs := runConcurrently(n, l.concurrency, func(i int) error {
		return l.create(c, s.collection(from+i), string(s.body(from+i)))
	})
	l.addResult("create "+s.name, before, n, time.Since(start).Seconds(), latencies, map[string]any{"errors": errs})
	return l.lastResult("cpu_ms_per_op")
}

// measureGets measures GET requests and returns the CPU time of each in milliseconds.
func (l *load) measureGets(concurrency int, name, accept string, path func(int) string) float64 {
	l.measureRequests(l.newClient(), name, concurrency, path, accept)
	return l.lastResult("cpu_ms_per_op")
}

// measurePatches measures patches and returns the CPU time of each in milliseconds.
func (l *load) measurePatches(c *http.Client, s *side) float64 {
	l.runTimed("patch "+s.name, l.concurrency, func(i int) error {
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"bench/stamp":"%d"}}}`, time.Now().UnixNano())
		code, out, err := l.request(c, "PATCH", s.object(i%l.objectCount), "application/merge-patch+json", body,
			"application/json")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("patch: %d %.300s", code, out)
		}
		return err
	})
	return l.lastResult("cpu_ms_per_op")
}
