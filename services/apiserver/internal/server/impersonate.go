package server

import (
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/limit"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// Impersonation headers.
const (
	headerImpersonate = "Impersonate-"
	impersonateUser   = headerImpersonate + "User"
	impersonateUID    = headerImpersonate + "Uid"
	impersonateGroup  = headerImpersonate + "Group"
	impersonateExtra  = headerImpersonate + "Extra-"
)

// headerFieldOverhead is the size in bytes that each header field counts besides its text, as in
// HTTP/2 (RFC 9113, "SETTINGS_MAX_HEADER_LIST_SIZE"). It makes empty groups count: each needs an
// authorization check like any other.
const headerFieldOverhead = 32

// authenticationGroup is the API group of the resources userextras and uids, which stand for parts of
// a user in authorization checks.
const authenticationGroup = "authentication." + api.Domain

// errNoPermit reports that no permit became free in time.
var errNoPermit = errors.New("no permit for a large request in time")

// withImpersonation replaces the user of a request by the impersonated one. Each part of that user
// needs a separate permission (specification: "Authorization", verb impersonate).
func (c *Config) withImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, err := parseImpersonation(r.Header)
		if err != nil {
			c.Responder.Error(w, r, err)
			return
		}
		if target == nil {
			c.Metrics.Filters.Impersonation.Observe(0) // reading the clock would take longer
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		start := time.Now()
		err = c.authorizeImpersonation(r, target)
		if errors.Is(err, errNoPermit) {
			overload.TooManyRequests(w, 1)
			return
		}
		if err != nil {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			c.Responder.Error(w, r, err)
			return
		}
		addImpliedGroups(target.user)
		for name := range r.Header {
			if strings.HasPrefix(name, headerImpersonate) {
				r.Header.Del(name)
			}
		}
		if u := request.UserFrom(ctx); u.InGroup(api.GroupMasters) {
			// An administrator or an authenticating proxy acts on behalf of the impersonated user.
			request.FromContext(ctx).Principal = request.PrincipalOf(target.user, r.RemoteAddr)
		}
		audit.FromContext(ctx).Impersonate(target.user)
		telemetry.ObserveSince(c.Metrics.Filters.Impersonation, start)
		ctx, state := request.Derive(ctx)
		state.User = target.user
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// authorizeImpersonation returns nil if the client may impersonate the user. It checks the name
// first, so that a client without that permission waits for no permit and the other headers are not
// parsed.
func (c *Config) authorizeImpersonation(r *http.Request, target *impersonatedUser) error {
	if err := c.authorizeImpersonatedPart(r, target.nameAttributes()); err != nil {
		return err
	}
	release, ok := overload.AdmitHeaders(r.Context(), target.size)
	defer release()
	if !ok {
		return errNoPermit
	}
	for attributes := range target.partAttributes() {
		if r.Context().Err() != nil {
			return apierrors.NewTimeoutError("timed out while waiting to authorize impersonation", 1)
		}
		if err := c.authorizeImpersonatedPart(r, attributes); err != nil {
			return err
		}
	}
	return nil
}

// authorizeImpersonatedPart returns nil if the client may impersonate one part of a user.
func (c *Config) authorizeImpersonatedPart(r *http.Request, attributes *authz.Attributes) error {
	attributes.User = request.UserFrom(r.Context())
	attributes.Verb = "impersonate"
	attributes.Resource = true
	decision, reason, err := c.Authorizer.Authorize(r.Context(), attributes)
	if decision == authz.Allow {
		return nil
	}
	if err != nil {
		c.Logger.Warn("authorization of impersonation failed", "path", r.URL.Path, "error", err)
	}
	if errors.Is(err, limit.ErrFull) {
		return errNoPermit
	}
	return authz.Forbidden(attributes, reason)
}

// impersonatedUser is the user in the impersonation headers.
type impersonatedUser struct {
	user   *request.User // without extra until readExtra
	header http.Header
	extras []string // the names of the header fields with extra, unordered
	size   int      // in bytes of header; the checks take time in proportion
}

// parseImpersonation parses the impersonation headers, except extra. It returns nil if there are
// none.
func parseImpersonation(header http.Header) (*impersonatedUser, error) {
	if users := header[impersonateUser]; len(slices.Compact(slices.Clone(users))) > 1 {
		return nil, apierrors.NewBadRequest("requested several users to impersonate")
	}
	user := &request.User{Name: header.Get(impersonateUser), UID: header.Get(impersonateUID), Groups: slices.Clone(header.Values(impersonateGroup))}
	target := &impersonatedUser{user: user, header: header, size: len(user.Name) + len(user.UID)}
	target.addSize("", user.Groups)
	for name, values := range header {
		if key, ok := strings.CutPrefix(name, impersonateExtra); ok {
			target.extras = append(target.extras, name)
			target.addSize(key, values)
		}
	}
	if user.Name != "" {
		return target, nil
	}
	if len(user.Groups) > 0 || len(target.extras) > 0 || user.UID != "" {
		return nil, apierrors.NewBadRequest("requested groups, extra information or a uid without impersonating a user")
	}
	return nil, nil
}

// addSize adds the size of a header field to size.
func (p *impersonatedUser) addSize(key string, values []string) {
	for _, value := range values {
		p.size += len(key) + len(value) + headerFieldOverhead
	}
}

// readExtra sets the extra of the user, which takes long for many fields.
func (p *impersonatedUser) readExtra() {
	if len(p.extras) == 0 {
		return
	}
	slices.Sort(p.extras) // different spellings may mean the same key
	p.user.Extra = make(map[string][]string, len(p.extras))
	for _, name := range p.extras {
		key := authn.ExtraKey(name[len(impersonateExtra):])
		p.user.Extra[key] = append(p.user.Extra[key], p.header[name]...)
	}
}

// nameAttributes returns the check for the name of the user.
func (p *impersonatedUser) nameAttributes() *authz.Attributes {
	if namespace, name, ok := satoken.SplitUsername(p.user.Name); ok {
		return &authz.Attributes{Version: "v1", ResourceName: "serviceaccounts", Namespace: namespace, Name: name}
	}
	return &authz.Attributes{Version: "v1", ResourceName: "users", Name: p.user.Name}
}

// partAttributes returns the other checks in the order groups, extra, uid.
func (p *impersonatedUser) partAttributes() iter.Seq[*authz.Attributes] {
	return func(yield func(*authz.Attributes) bool) {
		user := p.user
		for _, group := range user.Groups {
			if !yield(&authz.Attributes{Version: "v1", ResourceName: "groups", Name: group}) {
				return
			}
		}
		p.readExtra()
		for _, key := range slices.Sorted(maps.Keys(user.Extra)) {
			for _, value := range user.Extra[key] {
				if !yield(&authz.Attributes{
					Group:        authenticationGroup,
					Version:      "v1",
					ResourceName: "userextras",
					Subresource:  key,
					Name:         value,
				}) {
					return
				}
			}
		}
		if user.UID != "" {
			yield(&authz.Attributes{Group: authenticationGroup, Version: "v1", ResourceName: "uids", Name: user.UID})
		}
	}
}

// addImpliedGroups adds the groups that the name of the user implies: those of a service account
// unless the client named groups, and the group of authenticated or unauthenticated users.
func addImpliedGroups(user *request.User) {
	if namespace, _, ok := satoken.SplitUsername(user.Name); ok && len(user.Groups) == 0 {
		user.Groups = satoken.Groups(namespace)
	}
	group := api.GroupAuthenticated
	if user.Name == api.UserAnonymous {
		group = api.GroupUnauthenticated
	}
	if !user.InGroup(group) && !user.InGroup(api.GroupUnauthenticated) {
		user.Groups = append(user.Groups, group)
	}
}
