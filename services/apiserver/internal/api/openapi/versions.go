package openapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"maps"
	"net/http"
	"strings"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The authentication scheme in the documents.
const (
	bearer    = "BearerToken"
	bearerDoc = "Bearer Token authentication"
)

// newV2 returns a v2 document of paths, with the models in known and customModels. Parameters are
// defined once and referenced by operations.
func newV2(paths []path, known *models, customModels map[string]*spec.Schema, release string) *spec.Swagger {
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0",
		Info:    &spec.Info{InfoProps: spec.InfoProps{Title: apiTitle, Version: release}},
		Paths:   &spec.Paths{Paths: make(map[string]spec.PathItem, len(paths))},
		SecurityDefinitions: spec.SecurityDefinitions{bearer: &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
			Type: "apiKey", Name: "authorization", In: "header", Description: bearerDoc,
		}}},
		Security: []map[string][]string{{bearer: {}}},
	}}
	shared := sharedParameters{used: map[string]spec.Parameter{}, names: map[string]string{}, refs: map[parameter]spec.Parameter{}}
	for _, p := range paths {
		item := spec.PathItem{PathItemProps: spec.PathItemProps{Parameters: shared.list(p.parameters)}}
		for i := range p.operations {
			op := &p.operations[i]
			*operationField(op.method, &item.Get, &item.Put, &item.Post, &item.Delete, &item.Head, &item.Options, &item.Patch) = known.v2Operation(
				op,
				&shared,
			)
		}
		doc.Paths.Paths[p.path] = item
	}
	doc.Parameters = shared.used
	doc.Definitions = make(spec.Definitions, len(known.schemas)+len(customModels))
	for name, s := range known.schemas {
		doc.Definitions[name] = *s
	}
	for name, s := range customModels {
		doc.Definitions[name] = *s
	}
	return doc
}

// operationField returns the field for the operation of a method in a path item. The other
// arguments are the fields of the path item.
func operationField[O any](method string, get, put, post, del, head, options, patch **O) **O {
	switch method {
	case http.MethodGet:
		return get
	case http.MethodPut:
		return put
	case http.MethodPost:
		return post
	case http.MethodDelete:
		return del
	case http.MethodHead:
		return head
	case http.MethodOptions:
		return options
	default:
		return patch
	}
}

// v2Operation returns an operation in the form of v2.
func (m *models) v2Operation(op *operation, shared *sharedParameters) *spec.Operation {
	out := &spec.Operation{OperationProps: spec.OperationProps{
		Tags:        []string{op.tag},
		Description: op.description,
		ID:          op.id,
		Consumes:    op.consumes,
		Produces:    op.produces,
		Schemes:     []string{"https"},
		Responses:   &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{}}},
	}}
	out.Responses.StatusCodeResponses[http.StatusUnauthorized] = spec.Response{ResponseProps: spec.ResponseProps{
		Description: http.StatusText(http.StatusUnauthorized),
	}}
	if op.action != "" {
		out.AddExtension(extAction, op.action)
		out.AddExtension(extGVK, gvkMap(op.gvk))
	}
	if op.body != nil {
		s := m.bodySchema(op.body)
		body := spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: !op.bodyOptional, Schema: &s}}
		if ref := s.Ref.String(); strings.HasPrefix(ref, "#/definitions/io.k8s.apimachinery") {
			body = shared.refTo(body) // many kinds have the same body
		}
		out.Parameters = append(out.Parameters, body)
	}
	out.Parameters = append(out.Parameters, shared.list(op.parameters)...)
	for _, code := range op.codes {
		s := m.bodySchema(op.result)
		out.Responses.StatusCodeResponses[code] = spec.Response{ResponseProps: spec.ResponseProps{
			Description: http.StatusText(code), Schema: &s,
		}}
	}
	return out
}

// sharedParameters collects the parameters that a v2 document defines once.
type sharedParameters struct {
	used  map[string]spec.Parameter    // by name
	names map[string]string            // by JSON of the parameter
	refs  map[parameter]spec.Parameter // references; caches results of refTo
}

// list returns the parameters as references. The parameter "name" is not a reference, because it
// depends on the path. Neither are "dryRun" and "fieldValidation", because clients look for them in
// operations to detect features of the server.
func (c *sharedParameters) list(ps []parameter) []spec.Parameter {
	var out []spec.Parameter
	for _, p := range ps {
		if ref, ok := c.refs[p]; ok {
			out = append(out, ref)
			continue
		}
		full := spec.Parameter{
			ParamProps:   spec.ParamProps{Name: p.name, In: p.in, Description: p.description, Required: p.required},
			SimpleSchema: spec.SimpleSchema{Type: p.typ},
		}
		full.UniqueItems = true
		switch p.name {
		case "name", "dryRun", "fieldValidation":
			out = append(out, full)
		default:
			c.refs[p] = c.refTo(full)
			out = append(out, c.refs[p])
		}
	}
	return out
}

// refTo defines a parameter, unless it is already defined, and returns a reference to it. As in
// Kubernetes, the name of the definition ends with a hash of the parameter's JSON: the first six
// bytes of FNV-1 in URL-safe base64.
func (c *sharedParameters) refTo(parameter spec.Parameter) spec.Parameter {
	data, err := json.Marshal(parameter)
	if err != nil {
		return parameter
	}
	name, ok := c.names[string(data)]
	if !ok {
		sum := fnv.New64()
		_, _ = sum.Write(data)
		name = parameter.Name + "-" + base64.URLEncoding.EncodeToString(sum.Sum(nil)[:6])
		c.names[string(data)] = name
		c.used[name] = parameter
	}
	return spec.Parameter{Refable: spec.Refable{Ref: spec.MustCreateRef("#/parameters/" + name)}}
}

// apiTitle is the title of the documents.
const apiTitle = "Kubernetes"

// securitySchemes returns the authentication schemes in the documents of built-in group versions.
func securitySchemes() spec3.SecuritySchemes {
	return spec3.SecuritySchemes{bearer: &spec3.SecurityScheme{SecuritySchemeProps: spec3.SecuritySchemeProps{
		Type: "apiKey", Name: "authorization", In: "header", Description: bearerDoc,
	}}}
}

// newV3 returns a v3 document of paths, with the models in known and customModels.
func newV3(paths []path, known *models, customModels map[string]*spec.Schema, info spec.InfoProps) *spec3.OpenAPI {
	doc := &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       &spec.Info{InfoProps: info},
		Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{},
	}
	for _, p := range paths {
		item := &spec3.Path{PathProps: spec3.PathProps{Parameters: v3Parameters(p.parameters)}}
		for i := range p.operations {
			op := &p.operations[i]
			*operationField(op.method, &item.Get, &item.Put, &item.Post, &item.Delete, &item.Head, &item.Options, &item.Patch) = known.v3Operation(
				op,
			)
		}
		doc.Paths.Paths[p.path] = item
	}
	maps.Copy(known.schemas, customModels)
	doc.Components.Schemas = known.schemas
	return doc
}

// v3Parameters returns parameters in the form of v3.
func v3Parameters(ps []parameter) []*spec3.Parameter {
	var out []*spec3.Parameter
	for _, p := range ps {
		out = append(out, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
			Name:        p.name,
			In:          p.in,
			Description: p.description,
			Required:    p.required,
			Schema:      &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{p.typ}, UniqueItems: true}},
		}})
	}
	return out
}

// v3Operation returns an operation in the form of v3.
func (m *models) v3Operation(op *operation) *spec3.Operation {
	out := &spec3.Operation{OperationProps: spec3.OperationProps{
		Tags:        []string{op.tag},
		Description: op.description,
		OperationId: op.id,
		Parameters:  v3Parameters(op.parameters),
		Responses:   &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{}}},
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

// v3Content returns the schema of a body for each media type.
func (m *models) v3Content(body *bodyModel, media []string) map[string]*spec3.MediaType {
	s := m.bodySchema(body)
	out := make(map[string]*spec3.MediaType, len(media))
	for _, t := range media {
		out[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: &s}}
	}
	return out
}

// bodySchema returns the schema of a request or response body. It adds the model of a Go type. body
// may be nil.
func (m *models) bodySchema(body *bodyModel) spec.Schema {
	switch {
	case body == nil || body.typ == nil && body.name == "":
		return *spec.StringProperty()
	case body.name != "":
		return spec.Schema{SchemaProps: spec.SchemaProps{Ref: m.refTo(cmp.Or(m.renamed[body.name], body.name))}}
	default:
		return m.modelRef(body.typ)
	}
}
