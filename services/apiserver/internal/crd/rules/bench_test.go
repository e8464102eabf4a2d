package rules_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/tape"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// wideSchema returns a schema of 60 fields and five rules.
func wideSchema() *v1.JSONSchemaProps {
	pointerTo := func(n int64) *int64 { return &n }
	text := func(max int64) v1.JSONSchemaProps {
		return v1.JSONSchemaProps{Type: "string", MaxLength: pointerTo(max), Description: strings.Repeat("about a field ", 5)}
	}
	spec := v1.JSONSchemaProps{Type: "object", Required: []string{"f0"}, Properties: map[string]v1.JSONSchemaProps{}}
	for i := range 40 {
		switch i % 4 {
		case 0:
			spec.Properties[fmt.Sprintf("f%d", i)] = text(200)
		case 1:
			spec.Properties[fmt.Sprintf("f%d", i)] = v1.JSONSchemaProps{Type: "integer", Format: "int32"}
		case 2:
			spec.Properties[fmt.Sprintf("f%d", i)] = v1.JSONSchemaProps{Type: "boolean"}
		case 3:
			spec.Properties[fmt.Sprintf("f%d", i)] = v1.JSONSchemaProps{Type: "string", Pattern: "^[a-z0-9-]+$", MaxLength: pointerTo(63)}
		}
	}
	port := v1.JSONSchemaProps{Type: "object", Required: []string{"name"}, Properties: map[string]v1.JSONSchemaProps{
		"name": text(63),
		"port": {Type: "integer"},
		"protocol": {
			Type:    "string",
			Enum:    []v1.JSON{{Raw: []byte(`"TCP"`)}, {Raw: []byte(`"UDP"`)}},
			Default: &v1.JSON{Raw: []byte(`"TCP"`)},
		},
		"target": {XIntOrString: true, AnyOf: []v1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}},
	}}
	keyed := "map"
	spec.Properties["ports"] = v1.JSONSchemaProps{
		Type:         "array",
		MaxItems:     pointerTo(64),
		XListType:    &keyed,
		XListMapKeys: []string{"name"},
		Items:        &v1.JSONSchemaPropsOrArray{Schema: &port},
		XValidations: v1.ValidationRules{{Rule: "self.all(p, !has(p.port) || p.port > 0)"}},
	}
	labels := text(100)
	spec.Properties["labels"] = v1.JSONSchemaProps{
		Type:                 "object",
		MaxProperties:        pointerTo(64),
		AdditionalProperties: &v1.JSONSchemaPropsOrBool{Allows: true, Schema: &labels},
	}
	spec.XValidations = v1.ValidationRules{
		{Rule: "!has(self.f1) || self.f1 >= 0", Message: "not below zero"},
		{Rule: "self.f0.startsWith('x') || size(self.f0) > 1"},
		{Rule: "!has(oldSelf.f0) || self.f0 == oldSelf.f0", Message: "immutable"},
	}
	when := v1.JSONSchemaProps{Type: "string", Format: "date-time"}
	condition := v1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]v1.JSONSchemaProps{
			"type":               text(63),
			"status":             text(10),
			"reason":             text(100),
			"message":            text(1000),
			"lastTransitionTime": when,
		},
	}
	status := v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{
		"observedGeneration": {Type: "integer", Format: "int64"}, "phase": text(20),
		"conditions": {Type: "array", MaxItems: pointerTo(20), Items: &v1.JSONSchemaPropsOrArray{Schema: &condition}},
	}, XValidations: v1.ValidationRules{{Rule: "!has(self.phase) || self.phase != 'Bad'"}}}
	return &v1.JSONSchemaProps{Type: "object", Properties: map[string]v1.JSONSchemaProps{"spec": spec, "status": status}}
}

// typicalObject returns an object of 6 KB.
func typicalObject() []byte {
	spec, labels := map[string]any{}, map[string]any{}
	for i := range 40 {
		spec[fmt.Sprintf("f%d", i)] = []any{strings.Repeat("some text ", 8), i, i%8 == 2, "name-" + strings.Repeat("a", 20)}[i%4]
	}
	var ports, conditions []any
	for i := range 10 {
		ports = append(ports,
			map[string]any{"name": fmt.Sprintf("port-%d", i), "port": 8000 + i, "protocol": "TCP", "target": "http"})
		labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("v", 30)
	}
	for i := range 6 {
		conditions = append(
			conditions,
			map[string]any{"type": fmt.Sprintf("Condition%d", i), "status": "True", "reason": "AsExpected",
				"message": strings.Repeat("all is well ", 10), "lastTransitionTime": "2024-05-06T07:08:09Z"},
		)
	}
	spec["ports"], spec["labels"] = ports, labels
	data, _ := json.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{
			"name":        "a",
			"namespace":   "b",
			"labels":      map[string]any{"a": "b"},
			"annotations": map[string]any{"note": strings.Repeat("n", 600)},
		},
		"spec": spec, "status": map[string]any{"observedGeneration": 3, "phase": "Ready", "conditions": conditions}})
	return data
}

// BenchmarkWrite measures the stages of a write of a custom resource.
func BenchmarkWrite(b *testing.B) {
	schemaProps := wideSchema()
	program, err := schema.Compile(schemaProps)
	if err != nil {
		b.Fatal(err)
	}
	ruleSet := compiler.Compile(schemaProps, program)
	data := typicalObject()
	b.Logf("%d bytes", len(data))
	// options describes a write: an update by an equal document or a create, with or without rules.
	type options struct{ isUpdate, evaluateRules bool }
	// write measures a write of a document without the network and storage.
	write := func(b *testing.B, data []byte, setup options) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			doc, err := tape.Parse(data)
			if err != nil {
				b.Fatal(err)
			}
			normalized, err := program.Normalize(doc, schema.NormalizeOptions{Unknown: true})
			if err != nil {
				b.Fatal(err)
			}
			var old *tape.Doc
			if setup.isUpdate {
				old = normalized.Doc
			}
			if errs := program.Check(normalized.Doc, old, true, nil).All(); len(errs) > 0 {
				b.Fatal(errs)
			}
			if setup.evaluateRules {
				if errs := ruleSet.Evaluate(b.Context(), normalized.Doc, old, nil, nil); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
			doc.Release()
		}
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			doc, err := tape.Parse(data)
			if err != nil {
				b.Fatal(err)
			}
			doc.Release()
		}
	})
	b.Run("schema", func(b *testing.B) { write(b, data, options{}) })
	b.Run("create", func(b *testing.B) { write(b, data, options{evaluateRules: true}) })
	b.Run("update", func(b *testing.B) { write(b, data, options{isUpdate: true, evaluateRules: true}) })
	missing := []byte(strings.ReplaceAll(string(data), `"protocol":"TCP",`, ""))
	b.Run("defaulted", func(b *testing.B) { write(b, missing, options{evaluateRules: true}) })
}

// BenchmarkDefinition measures the compilation of a definition, and the memory that it holds.
func BenchmarkDefinition(b *testing.B) {
	schemaProps := wideSchema()
	compiler := rules.NewCompiler()
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if errs := compiler.CheckSchema(rules.SchemaCheck{Schema: schemaProps}); len(errs) > 0 {
				b.Fatal(errs)
			}
		}
	})
	b.Run("schema", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := schema.Compile(schemaProps); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rules", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if rules.NewCompiler().Compile(schemaProps, nil) == nil {
				b.Fatal("Compile = nil, want the rules of the schema")
			}
		}
	})
	b.Run("memory", func(b *testing.B) {
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		const count = 100
		programs, ruleSets := make([]*schema.Program, count), make([]*rules.Rules, count)
		compiler.Compile(schemaProps, nil)
		before := heap()
		for i := range count {
			programs[i], _ = schema.Compile(schemaProps)
		}
		compiled := heap()
		for i := range count {
			ruleSets[i] = compiler.Compile(schemaProps, programs[i])
		}
		shared := heap()
		alone := rules.NewCompiler()
		aloneRules := alone.Compile(schemaProps, nil)
		unshared := heap()
		runtime.KeepAlive(programs)
		runtime.KeepAlive(ruleSets)
		runtime.KeepAlive(aloneRules)
		for b.Loop() {
		}
		b.ReportMetric(float64(compiled-before)/count, "B/schema")
		b.ReportMetric(float64(shared-compiled)/count, "B/rules-shared")
		b.ReportMetric(float64(unshared-shared), "B/compiler+rules")
	})
}
