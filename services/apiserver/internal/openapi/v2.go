package openapi

import (
	"net/http"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	bearer    = "BearerToken"
	bearerDoc = "Bearer Token authentication"
)

// newV2 makes the v2 document of all paths. Parameters that several operations
// have in common stand once and are referred to.
func newV2(ps []path, m *models, extra map[string]*spec.Schema, release string) *spec.Swagger {
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: apiTitle, Version: release}},
		Paths:   &spec.Paths{Paths: make(map[string]spec.PathItem, len(ps))},
		SecurityDefinitions: spec.SecurityDefinitions{bearer: &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: bearerDoc,
		}}},
		Security: []map[string][]string{{bearer: {}}},
	}}
	shared := sharedParameters{used: map[string]spec.Parameter{}}
	for _, p := range ps {
		item := spec.PathItem{PathItemProps: spec.PathItemProps{Parameters: shared.list(p.parameters)}}
		for i := range p.operations {
			op := &p.operations[i]
			*v2Slot(&item, op.method) = m.v2Operation(op, &shared)
		}
		doc.Paths.Paths[p.path] = item
	}
	doc.Parameters = shared.used
	doc.Definitions = make(spec.Definitions, len(m.schemas)+len(extra))
	for name, s := range m.schemas {
		doc.Definitions[name] = *s
	}
	for name, s := range extra {
		doc.Definitions[name] = *s
	}
	return doc
}

func v2Slot(p *spec.PathItem, method string) **spec.Operation {
	switch method {
	case http.MethodGet:
		return &p.Get
	case http.MethodPut:
		return &p.Put
	case http.MethodPost:
		return &p.Post
	case http.MethodDelete:
		return &p.Delete
	default:
		return &p.Patch
	}
}

func (m *models) v2Operation(op *operation, shared *sharedParameters) *spec.Operation {
	out := &spec.Operation{OperationProps: spec.OperationProps{
		Tags: []string{op.tag}, Description: op.description, ID: op.id, Consumes: op.consumes, Produces: op.produces,
		Schemes: []string{"https"},
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: http.StatusText(http.StatusUnauthorized)}},
		}}},
	}}
	if op.action != "" {
		out.AddExtension(extAction, op.action)
		out.AddExtension(extGVK, gvkMap(op.gvk))
	}
	if op.body != nil {
		s := m.schemaOf(op.body)
		out.Parameters = append(out.Parameters, spec.Parameter{ParamProps: spec.ParamProps{
			Name: "body", In: "body", Required: !op.bodyOptional, Schema: &s,
		}})
	}
	out.Parameters = append(out.Parameters, shared.list(op.parameters)...)
	for _, code := range op.codes {
		s := m.schemaOf(op.result)
		out.Responses.StatusCodeResponses[code] = spec.Response{ResponseProps: spec.ResponseProps{
			Description: http.StatusText(code), Schema: &s,
		}}
	}
	return out
}

// sharedParameters collects the parameters of a document.
type sharedParameters struct{ used map[string]spec.Parameter }

// list refers to parameters. Those whose meaning depends on the path are
// written out; of two with one name the first is shared.
func (c *sharedParameters) list(ps []parameter) []spec.Parameter {
	var out []spec.Parameter
	for _, p := range ps {
		full := spec.Parameter{
			ParamProps:   spec.ParamProps{Name: p.name, In: p.in, Description: p.description, Required: p.required},
			SimpleSchema: spec.SimpleSchema{Type: p.typ},
		}
		full.UniqueItems = true
		if p.name == "name" {
			out = append(out, full)
			continue
		}
		known, ok := c.used[p.name]
		if !ok {
			c.used[p.name] = full
		} else if known.Description != full.Description || known.Type != full.Type || known.In != full.In {
			out = append(out, full)
			continue
		}
		out = append(out, spec.Parameter{Refable: spec.Refable{Ref: spec.MustCreateRef("#/parameters/" + p.name)}})
	}
	return out
}
