package request

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
)

// User is the user that sends a request.
type User = authorizer.User

// UserInfo returns the API form of a user, which is empty for nil.
func UserInfo(user *User) authenticationv1.UserInfo {
	if user == nil {
		return authenticationv1.UserInfo{}
	}
	out := authenticationv1.UserInfo{Username: user.Name, UID: user.UID, Groups: user.Groups}
	for key, values := range user.Extra {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[key] = values
	}
	return out
}

// State is the state of a request that filters, authorization, admission and handlers share. The
// filter that owns a field writes it, before other goroutines have the request. A part of the
// server that needs other values calls Derive and changes the copy.
type State struct {
	// Info is what the request does: a *requestinfo.Info, which requestinfo.FromContext returns.
	Info any
	// Received is the time the request arrived.
	Received time.Time
	// TracedID is the audit id of the request in traces, of at most MaxTracedID bytes.
	TracedID string
	// Internal marks a request that the server sends to its own handler. No client can set it.
	Internal bool
	// Startup marks a request that the server sends to itself and that its readiness waits for.
	// Webhooks and policies do not see it, so that they cannot prevent the server from starting. No
	// client can set it.
	Startup bool
	// Lifetime is the context of the request without its deadline. It is for connections that
	// outlive the deadline, for example upgraded ones. See LifetimeOf.
	Lifetime context.Context
	// Warnings collects the warnings for the response. It may be nil.
	Warnings *Warnings
	// WaitTimes may be nil. Derived states share it.
	WaitTimes *WaitTimes
	// User is the user as which the request is authorized; nil before authentication.
	User *User
	// AuthenticationTime is how long authentication took. TokenAnnotations holds the audit
	// annotations of the token; it is shared and must not be changed.
	AuthenticationTime time.Duration
	TokenAnnotations   map[string]string
	// Principal is the key under which limits count the request: the network of the client, and
	// after authentication the key that PrincipalOf returns for the user. Impersonation does not
	// change it, so that the request counts for the impersonator, unless the impersonator is in
	// system:masters.
	Principal string
	// PriorityLevel is the name of the request's priority level. It is "" without flow control.
	PriorityLevel string
	// AuditEvent is the audit event of the request: an *audit.Record, which audit.FromContext
	// returns.
	AuditEvent any
	// RefreshAPISet, if set, is called in place of the handler once the
	// request is authorized. It reads the newest API set.
	RefreshAPISet func(context.Context)
	// Work is what the request occupies. nil means that the request has no limits.
	Work Work
	// Stored describes the object that a write stores. It is nil unless the request is traced.
	Stored *StoredValue
}

// StoredValue describes an object that a write stores, for the span of the write.
type StoredValue struct {
	// Type and Resource name its kind as Kubernetes does in traces: *core.Node, nodes.
	Type, Resource string
	// Begin and End are when the object was encoded; zero if unknown.
	Begin, End time.Time
}

// MaxTracedID is the maximum length in bytes of an audit id in traces, as in Kubernetes.
const MaxTracedID = 64

// stateKey is the only context key of request data.
type stateKey struct{}

// stateContext is a context with its state.
type stateContext struct {
	context.Context
	state State
}

// Value implements context.Context.
func (c *stateContext) Value(key any) any {
	if key == (stateKey{}) {
		return &c.state
	}
	return c.Context.Value(key)
}

// FromContext returns the state of a request. Outside of requests it returns
// an empty state, and changes to it have no effect.
func FromContext(ctx context.Context) *State {
	if state, ok := ctx.Value(stateKey{}).(*State); ok {
		return state
	}
	return new(State)
}

// Derive returns a context with a copy of the request's state. The caller may change
// the copy before other goroutines have the context.
func Derive(ctx context.Context) (context.Context, *State) {
	derived := &stateContext{ctx, *FromContext(ctx)}
	return derived, &derived.state
}

// Detach returns a context for work that several requests may wait for. It does not end with the
// request. It counts for the principal of the request. It does not see the request's limits, seats
// and records, which filters may set concurrently.
func Detach(ctx context.Context) context.Context {
	state := FromContext(ctx)
	return &stateContext{context.WithoutCancel(ctx), State{Info: state.Info, Startup: state.Startup, Principal: Principal(ctx)}}
}

// LifetimeOf returns the context of a connection that outlives the deadline of its request.
func LifetimeOf(ctx context.Context) context.Context {
	if lifetime := FromContext(ctx).Lifetime; lifetime != nil {
		return lifetime
	}
	return ctx
}

// UserFrom returns the user of the request. It is nil before authentication.
func UserFrom(ctx context.Context) *User { return FromContext(ctx).User }

// ServerUser returns the user that the server itself writes as. SelfManager is its field manager.
func ServerUser() *User {
	return &User{Name: "system:apiserver", Groups: []string{api.GroupMasters, api.GroupAuthenticated}}
}

// SelfManager is the field manager of writes by the server itself; see ServerUser.
const SelfManager = "kube-apiserver"
