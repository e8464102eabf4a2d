package openapi

import (
	"cmp"
	"net/http"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// apiTitle is the title of the documents.
const apiTitle = "Kubernetes"

// securitySchemes returns the authentication schemes in the documents of built-in group versions.
func securitySchemes() spec3.SecuritySchemes {
	return spec3.SecuritySchemes{bearer: &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
		Type: "apiKey", Name: "authorization", In: "header", Description: bearerDoc,
	}}}
}

// newV3 returns a v3 document of paths. extra holds the models that have names.
func newV3(ps []path, m *models, extra map[string]*spec.Schema, info spec.InfoProps) *spec3.OpenAPI {
	doc := &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       &spec.Info{InfoProps: info},
		Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{},
	}
	for _, p := range ps {
		item := &spec3.Path{PathProps: spec3.PathProps{Parameters: v3Parameters(p.parameters)}}
		for i := range p.operations {
			op := &p.operations[i]
			*slot(op.method, &item.Get, &item.Put, &item.Post, &item.Delete, &item.Head, &item.Options, &item.Patch) = m.v3Operation(op)
		}
		doc.Paths.Paths[p.path] = item
	}
	for name, s := range extra {
		m.schemas[name] = s
	}
	doc.Components.Schemas = m.schemas
	return doc
}

func v3Parameters(ps []parameter) []*spec3.Parameter {
	var out []*spec3.Parameter
	for _, p := range ps {
		out = append(out, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
			Name: p.name, In: p.in, Description: p.description, Required: p.required,
			Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{p.typ}, UniqueItems: true}},
		}})
	}
	return out
}

func (m *models) v3Operation(op *operation) *spec3.Operation {
	out := &spec3.Operation{OperationProps: spec3.OperationProps{
		Tags: []string{op.tag}, Description: op.description, OperationId: op.id, Parameters: v3Parameters(op.parameters),
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{}}},
	}}
	out.Responses.StatusCodeResponses[http.StatusUnauthorized] = &spec3.Response{ResponseProps: spec3.ResponseProps{
		Description: http.StatusText(http.StatusUnauthorized),
	}}
	if op.action != "" {
		out.AddExtension(extAction, op.action)
		out.AddExtension(extGVK, gvkMap(op.gvk))
	}
	if op.body != nil {
		out.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{
			Required: !op.bodyOptional, Content: m.v3Content(op.body, op.consumes),
		}}
	}
	for _, code := range op.codes {
		out.Responses.StatusCodeResponses[code] = &spec3.Response{ResponseProps: spec3.ResponseProps{
			Description: http.StatusText(code), Content: m.v3Content(op.result, op.produces),
		}}
	}
	return out
}

func (m *models) v3Content(what *model, media []string) map[string]*spec3.MediaType {
	s := m.schemaOf(what)
	out := make(map[string]*spec3.MediaType, len(media))
	for _, t := range media {
		out[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: &s}}
	}
	return out
}

// schemaOf returns the schema of a request or response body.
func (m *models) schemaOf(what *model) spec.Schema {
	switch {
	case what == nil || what.typ == nil && what.name == "":
		return *spec.StringProperty()
	case what.name != "":
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(cmp.Or(m.renamed[what.name], what.name))}}
	default:
		return m.ref(what.typ)
	}
}
