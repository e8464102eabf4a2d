package server

import (
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/audit"
	"binnacle/services/apiserver/internal/authn"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/request"
)

// Headers in which a client says as whom it wants to be seen.
const (
	headerImpersonate = "Impersonate-"
	impersonateUser   = headerImpersonate + "User"
	impersonateUID    = headerImpersonate + "Uid"
	impersonateGroup  = headerImpersonate + "Group"
	impersonateExtra  = headerImpersonate + "Extra-"
)

const authenticationGroup = "authentication." + api.Domain

// impersonate lets a client be seen as another user. Each part of that user
// needs its own permission (specification: "Authorization", verb impersonate).
func (c *Config) impersonate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wanted, needs, err := impersonated(r.Header)
		if err != nil {
			c.Responder.Error(w, r, err)
			return
		}
		if wanted == nil {
			c.Metrics.filters.impersonation.Observe(0) // looking at a clock would take longer
			next.ServeHTTP(w, r)
			return
		}
		ctx, begin := r.Context(), time.Now()
		for _, a := range needs {
			a.User, a.Verb, a.Resource = request.UserFrom(ctx), "impersonate", true
			d, reason, err := c.Authorizer.Authorize(ctx, a)
			if d == authz.Allow {
				continue
			}
			if err != nil {
				c.Logger.Warn("authorization of impersonation failed", "path", r.URL.Path, "error", err)
			}
			w.Header().Set("X-Content-Type-Options", "nosniff")
			c.Responder.Error(w, r, authz.Forbidden(a, reason))
			return
		}
		for name := range r.Header {
			if strings.HasPrefix(name, headerImpersonate) {
				r.Header.Del(name)
			}
		}
		audit.From(ctx).Impersonate(wanted)
		noted(c.Metrics.filters.impersonation, begin)
		next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, wanted)))
	})
}

// impersonated reads who the client wants to be, and what it must be allowed to
// for that: in the order user, groups, extra, uid. The user is nil when the
// client wants to be itself.
func impersonated(h http.Header) (*request.User, []*authz.Attributes, error) {
	u := &request.User{Name: h.Get(impersonateUser), UID: h.Get(impersonateUID), Groups: slices.Clone(h.Values(impersonateGroup))}
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, impersonateExtra); ok {
			if u.Extra == nil {
				u.Extra = map[string][]string{}
			}
			u.Extra[authn.ExtraKey(key)] = slices.Clone(values)
		}
	}
	if u.Name == "" {
		if len(u.Groups) > 0 || len(u.Extra) > 0 || u.UID != "" {
			return nil, nil, apierrors.NewBadRequest("requested groups, extra information or a uid without impersonating a user")
		}
		return nil, nil, nil
	}
	needs := permissions(u)
	complete(u)
	return u, needs, nil
}

// permissions that it takes to be seen as a user.
func permissions(u *request.User) []*authz.Attributes {
	var needs []*authz.Attributes
	if namespace, name, ok := satoken.SplitUsername(u.Name); ok {
		needs = append(needs, &authz.Attributes{Version: "v1", ResourceName: "serviceaccounts", Namespace: namespace, Name: name})
	} else {
		needs = append(needs, &authz.Attributes{Version: "v1", ResourceName: "users", Name: u.Name})
	}
	for _, g := range u.Groups {
		needs = append(needs, &authz.Attributes{Version: "v1", ResourceName: "groups", Name: g})
	}
	keys := make([]string, 0, len(u.Extra))
	for k := range u.Extra {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		for _, v := range u.Extra[k] {
			needs = append(needs, &authz.Attributes{Group: authenticationGroup, Version: "v1", ResourceName: "userextras", Subresource: k, Name: v})
		}
	}
	if u.UID != "" {
		needs = append(needs, &authz.Attributes{Group: authenticationGroup, Version: "v1", ResourceName: "uids", Name: u.UID})
	}
	return needs
}

// complete adds the groups that go with the user's name.
func complete(u *request.User) {
	if namespace, _, ok := satoken.SplitUsername(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = satoken.Groups(namespace)
	}
	if u.InGroup(api.GroupAuthenticated) || u.InGroup(api.GroupUnauthenticated) {
		return
	}
	group := api.GroupAuthenticated
	if u.Name == api.UserAnonymous {
		group = api.GroupUnauthenticated
	}
	u.Groups = append(u.Groups, group)
}
