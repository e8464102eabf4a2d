package internalclient

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"binnacle/libs/api"
	"binnacle/libs/version"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// localhost is the source address of the server's own requests.
const localhost = "::1"

// auditWrite executes a write with a separate audit event. The write does not appear in the event
// of the client request that caused it.
func (s *Server) auditWrite(
	ctx context.Context,
	resource *apiset.Resource,
	call *Call,
	write func(context.Context) (writes.Result, error),
) (writes.Result, error) {
	info := requestInfoOf(resource, call)
	// 1. Open the event. There is none if the policy does not want it.
	event := s.Audit.Open(info, request.ServerUser(), func() audit.ReceivedRequest {
		return audit.ReceivedRequest{
			ID:        audit.NewID(),
			URI:       info.Path,
			UserAgent: version.UserAgent(SelfAgent),
			SourceIPs: []string{localhost},
		}
	})
	ctx, state := request.Derive(ctx)
	state.AuditEvent = event
	if event == nil {
		return write(ctx)
	}
	if err := event.Receive(ctx); err != nil {
		return writes.Result{}, status.Failed("failed to store audit event")
	}
	defer func() {
		failure := recover()
		event.End(ctx, failure)
		if failure != nil {
			panic(failure)
		}
	}()
	event.Annotate("authorization.k8s.io/decision", "allow")
	event.Annotate("authorization.k8s.io/reason", "")
	// 2. Write, and record the result.
	res, err := write(ctx)
	code := http.StatusOK
	switch {
	case err != nil:
		st := status.FromError(err)
		event.SetResponseStatus(st)
		code = int(st.Code)
		if text, err := s.Codec.Encode(st, codec.StatusGVK, api.MediaJSON, false); err == nil {
			event.SetResponseObject(text)
		}
	case res.Created:
		code = http.StatusCreated
	}
	hasObject := err == nil && call.Verb != Delete && res.Item.Stored != nil
	if hasObject && event.Enabled(audit.RequestResponse) {
		if text, err := encodeItem(resource, res.Item); err == nil {
			event.SetResponseObject(text)
		}
	}
	event.BeginResponse(ctx, code)
	return res, err
}

// SelfAgent is the product in the server's own User-Agent.
const SelfAgent = "apiserver"

// methods maps verbs to HTTP methods.
var methods = map[Verb]string{Create: http.MethodPost, Update: http.MethodPut, Patch: http.MethodPatch, Delete: http.MethodDelete}

// requestInfoOf returns the info of the equivalent client request.
func requestInfoOf(resource *apiset.Resource, call *Call) *requestinfo.Info {
	info := &requestinfo.Info{
		Method:      methods[call.Verb],
		Verb:        string(call.Verb),
		IsResource:  true,
		Group:       call.Group,
		Version:     call.Version,
		Namespace:   call.Namespace,
		Resource:    call.Resource,
		Name:        call.Name,
		Subresource: call.Sub,
		Target:      resource,
	}
	parts := []string{"", "api"}
	if call.Group != "" {
		parts = []string{"", "apis", call.Group}
	}
	parts = append(parts, call.Version)
	if call.Namespace != "" {
		parts = append(parts, "namespaces", call.Namespace)
	}
	parts = append(parts, call.Resource)
	if call.Verb == Create && call.Sub == "" { // clients create objects in the collection
		info.Name = ""
	}
	if info.Name != "" {
		parts = append(parts, url.PathEscape(info.Name))
	}
	if call.Sub != "" {
		parts = append(parts, call.Sub)
	}
	info.Path = strings.Join(parts, "/")
	return info
}
