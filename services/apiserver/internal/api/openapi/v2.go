package openapi

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	bearer    = "BearerToken"
	bearerDoc = "Bearer Token authentication"
)

// newV2 returns the v2 document of all paths. Parameters that several operations share are defined
// once and referenced.
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
	shared := sharedParameters{used: map[string]spec.Parameter{}, names: map[string]string{}, refs: map[parameter]spec.Parameter{}}
	for _, p := range ps {
		item := spec.PathItem{PathItemProps: spec.PathItemProps{Parameters: shared.list(p.parameters)}}
		for i := range p.operations {
			op := &p.operations[i]
			*slot(op.method, &item.Get, &item.Put, &item.Post, &item.Delete, &item.Head, &item.Options, &item.Patch) = m.v2Operation(op, &shared)
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

// slot returns the operation of a method among those of a path.
func slot[O any](method string, get, put, post, del, head, options, patch **O) **O {
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

func (m *models) v2Operation(op *operation, shared *sharedParameters) *spec.Operation {
	out := &spec.Operation{OperationProps: spec.OperationProps{
		Tags: []string{op.tag}, Description: op.description, ID: op.id, Consumes: op.consumes, Produces: op.produces,
		Schemes:   []string{"https"},
		Responses: &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{}}},
	}}
	out.Responses.StatusCodeResponses[http.StatusUnauthorized] = spec.Response{ResponseProps: spec.ResponseProps{
		Description: http.StatusText(http.StatusUnauthorized),
	}}
	if op.action != "" {
		out.AddExtension(extAction, op.action)
		out.AddExtension(extGVK, gvkMap(op.gvk))
	}
	if op.body != nil {
		s := m.schemaOf(op.body)
		body := spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: !op.bodyOptional, Schema: &s}}
		if ref := s.Ref.String(); strings.HasPrefix(ref, "#/definitions/io.k8s.apimachinery") {
			body = shared.refer(body) // shared by many kinds
		}
		out.Parameters = append(out.Parameters, body)
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

// sharedParameters collects the parameters of a document that operations reference. used holds them
// by name; names maps their JSON to their name.
type sharedParameters struct {
	used  map[string]spec.Parameter
	names map[string]string
	refs  map[parameter]spec.Parameter
}

// list returns references to parameters. It writes out those that depend on the path, and those by
// which clients detect the features of a server.
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
			c.refs[p] = c.refer(full)
			out = append(out, c.refs[p])
		}
	}
	return out
}

// refer adds a shared parameter and returns a reference. As in Kubernetes, its name ends with a
// hash of its JSON: six bytes of FNV-1 in URL-safe base64.
func (c *sharedParameters) refer(p spec.Parameter) spec.Parameter {
	text, err := json.Marshal(p)
	if err != nil {
		return p
	}
	name, ok := c.names[string(text)]
	if !ok {
		sum := fnv.New64()
		_, _ = sum.Write(text)
		name = p.Name + "-" + base64.URLEncoding.EncodeToString(sum.Sum(nil)[:6])
		c.names[string(text)], c.used[name] = name, p
	}
	return spec.Parameter{Refable: spec.Refable{Ref: spec.MustCreateRef("#/parameters/" + name)}}
}
