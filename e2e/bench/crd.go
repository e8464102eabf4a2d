package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// measureDefinitions creates l.objectCount definitions and waits until the server serves all of
// them.
func (l *load) measureDefinitions(client *http.Client) {
	before := l.readUsage()
	t0 := time.Now()
	lat, errs := runConcurrently(l.objectCount, l.concurrency, func(i int) error {
		code, out, err := l.request(client, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			"application/json", widgetDefinition(i), "application/json")
		if err == nil && code != 201 && code != 200 {
			err = fmt.Errorf("crd %d: %d %.300s", i, code, out)
		}
		return err
	})
	created := time.Since(t0).Seconds()
	missing := l.objectCount
	for time.Since(t0) < 5*time.Minute {
		code, _, _ := l.request(client, "GET",
			fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", (l.objectCount-1)%20, l.objectCount-1), "", nil,
			"application/json")
		if code == 200 {
			missing = 0
			for i := 0; i < l.objectCount; i++ {
				code, _, _ := l.request(client, "GET", fmt.Sprintf("/apis/g%d.bench.example/v1/widget%ds", i%20, i), "",
					nil, "application/json")
				if code != 200 {
					missing++
				}
			}
			if missing == 0 {
				break
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	served := time.Since(t0).Seconds()
	time.Sleep(15 * time.Second) // memory settles
	after := l.readUsage()
	extra := map[string]any{
		"errors":    errs,
		"created_s": roundToThousandths(created),
		"served_s":  roundToThousandths(served),
		"unserved":  missing,
	}
	for k := range after.resident {
		extra["kib_per_crd_"+k] = roundToThousandths((after.resident[k] - before.resident[k]) * 1024 / float64(l.objectCount))
	}
	l.addResult("crd", before, l.objectCount, served, lat, extra)
}

// widgetDefinition returns the i-th definition, with a schema of 60 fields.
func widgetDefinition(index int) []byte {
	props := map[string]any{}
	for f := 0; f < 60; f++ {
		props[fmt.Sprintf("field%d",
			f)] = map[string]any{
			"type":        "object",
			"description": strings.Repeat("Explains what the field does for its readers. ", 3),
			"properties": map[string]any{
				"name":  map[string]any{"type": "string", "maxLength": 63, "pattern": "^[a-z0-9-]+$"},
				"count": map[string]any{"type": "integer", "minimum": 0, "maximum": 1000},
				"items": map[string]any{
					"type": "array",
					"items": map[string]any{
						"type": "object",
						"properties": map[string]any{
							"key":   map[string]any{"type": "string"},
							"value": map[string]any{"type": "string"},
						},
					},
				},
			},
		}
	}
	object := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": fmt.Sprintf("widget%ds.g%d.bench.example", index, index%20)},
		"spec": map[string]any{
			"group": fmt.Sprintf("g%d.bench.example", index%20),
			"scope": "Namespaced",
			"names": map[string]any{
				"plural":   fmt.Sprintf("widget%ds", index),
				"singular": fmt.Sprintf("widget%d", index),
				"kind":     fmt.Sprintf("Widget%d", index),
			},
			"versions": []any{map[string]any{
				"name":         "v1",
				"served":       true,
				"storage":      true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"spec":   map[string]any{"type": "object", "properties": props},
						"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
					},
				}},
			}},
		},
	}
	b, _ := json.Marshal(object)
	return b
}
