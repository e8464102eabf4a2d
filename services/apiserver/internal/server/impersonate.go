package server

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/libs/serving"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authz"
)

// Headers in which a client says as whom it wants to be seen.
const (
	headerImpersonate = "Impersonate-"
	impersonateUser   = headerImpersonate + "User"
	impersonateUID    = headerImpersonate + "Uid"
	impersonateGroup  = headerImpersonate + "Group"
	impersonateExtra  = headerImpersonate + "Extra-"
)

// perField is what each header field counts in bytes besides its text, as in HTTP/2 (RFC 9113,
// "SETTINGS_MAX_HEADER_LIST_SIZE"): an empty group is asked about like any other.
const perField = 32

const authenticationGroup = "authentication." + api.Domain

const (
	// maxImpersonating users of many groups wait for turns at a time.
	maxImpersonating = 100
	// askedWithout a turn are so many parts of such a user, when others took it while another
	// server answered about the one before.
	askedWithout = 64
)

// errNoTurn is that there was none in time.
var errNoTurn = errors.New("no turn of large requests")

// impersonate lets a client be seen as another user. Each part of that user
// needs its own permission (specification: "Authorization", verb impersonate).
func (c *Config) impersonate(next http.Handler) http.Handler {
	room := newSlots(maxImpersonating)
	room.strict = true
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := impersonated(r.Header)
		if err != nil {
			c.Responder.Error(w, r, err)
			return
		}
		if who == nil {
			c.Metrics.filters.impersonation.Observe(0) // looking at a clock would take longer
			next.ServeHTTP(w, r)
			return
		}
		ctx, begin := r.Context(), time.Now()
		err = c.mayBe(r, who, room)
		if errors.Is(err, errNoTurn) {
			tooMany(w, 1)
			return
		}
		if err != nil {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			c.Responder.Error(w, r, err)
			return
		}
		complete(who.user)
		for name := range r.Header {
			if strings.HasPrefix(name, headerImpersonate) {
				r.Header.Del(name)
			}
		}
		if u := request.UserFrom(ctx); u.InGroup(api.GroupMasters) {
			// An administrator or an authenticating proxy names the user that a request is for.
			request.SetPrincipal(ctx, request.PrincipalOf(who.user, r.RemoteAddr))
		}
		audit.From(ctx).Impersonate(who.user)
		noted(c.Metrics.filters.impersonation, begin)
		next.ServeHTTP(w, r.WithContext(request.WithUser(ctx, who.user)))
	})
}

// mayBe is why a client may not be seen as another user, nil if it may. Who may not be seen as
// anybody of that name waits for no turn, and nothing else of that user is read.
func (c *Config) mayBe(r *http.Request, w *wanted, room *slots) error {
	if err := c.mayImpersonate(r, w.name()); err != nil {
		return err
	}
	turn := userTurn{request: r, turns: c.LargeRequests, room: room, large: w.size >= largeTarget}
	defer turn.leave()
	if !turn.take() {
		return errNoTurn
	}
	for a := range w.parts() {
		if r.Context().Err() != nil {
			return apierrors.NewTimeoutError("there is no time left to ask who may be impersonated", 1)
		}
		if !turn.take() {
			return errNoTurn
		}
		if err := c.mayImpersonate(r, a); err != nil {
			return err
		}
	}
	return nil
}

// mayImpersonate is why a client may not be seen as what has a part of a user.
func (c *Config) mayImpersonate(r *http.Request, a *authz.Attributes) error {
	a.User, a.Verb, a.Resource = request.UserFrom(r.Context()), "impersonate", true
	d, reason, err := c.Authorizer.Authorize(r.Context(), a)
	if d == authz.Allow {
		return nil
	}
	if err != nil {
		c.Logger.Warn("authorization of impersonation failed", "path", r.URL.Path, "error", err)
	}
	if errors.Is(err, webhookclient.ErrCrowded) {
		return errNoTurn
	}
	return authz.Forbidden(a, reason)
}

// userTurn is a turn of large requests for asking about a user of many groups and extras.
type userTurn struct {
	request *http.Request
	turns   serving.LargeRequests
	room    *slots
	large   bool

	has     bool
	without int // questions may be asked without it
}

// take is called before each question; false when there is no turn in time.
func (t *userTurn) take() bool {
	if !t.large || t.has {
		return true
	}
	if t.without > 0 {
		t.without--
		return true
	}
	ctx := t.request.Context()
	u := clientOf(ctx)
	if _, ok := t.room.enter(u, 1); !ok {
		return false
	}
	defer t.room.leave(u, 1)
	within, cancel := context.WithTimeout(ctx, bodyWait(ctx))
	defer cancel()
	if t.turns.Enter(t.request.WithContext(within)) != nil {
		return false
	}
	t.has = true
	request.SetAside(ctx, t.aside)
	return true
}

// aside has others work while another server is waited for. The turn is not waited for anew after
// each of its answers.
func (t *userTurn) aside() (back func()) {
	if t.has {
		t.turns.Leave()
		t.has, t.without = false, askedWithout
	}
	return func() { t.has = t.turns.EnterNow() }
}

func (t *userTurn) leave() {
	request.SetAside(t.request.Context(), nil)
	if t.has {
		t.turns.Leave()
	}
	t.has = false
}

// wanted is as whom a client wants to be seen.
type wanted struct {
	user   *request.User // without extra until readExtra
	header http.Header
	extras []string // the names of the fields of extra, in no order
	size   int      // in bytes, what it takes to ask for the user
}

// impersonated reads who the client wants to be, nil when it wants to be itself.
func impersonated(h http.Header) (*wanted, error) {
	if users := h[impersonateUser]; len(slices.Compact(slices.Clone(users))) > 1 {
		return nil, apierrors.NewBadRequest("requested several users to impersonate")
	}
	u := &request.User{Name: h.Get(impersonateUser), UID: h.Get(impersonateUID), Groups: slices.Clone(h.Values(impersonateGroup))}
	w := &wanted{user: u, header: h, size: len(u.Name) + len(u.UID)}
	w.count("", u.Groups)
	for name, values := range h {
		if key, ok := strings.CutPrefix(name, impersonateExtra); ok {
			w.extras = append(w.extras, name)
			w.count(key, values)
		}
	}
	if u.Name != "" {
		return w, nil
	}
	if len(u.Groups) > 0 || len(w.extras) > 0 || u.UID != "" {
		return nil, apierrors.NewBadRequest("requested groups, extra information or a uid without impersonating a user")
	}
	return nil, nil
}

func (w *wanted) count(key string, values []string) {
	for _, v := range values {
		w.size += len(key) + len(v) + perField
	}
}

// readExtra gives the user its extra, which takes long for many fields.
func (w *wanted) readExtra() {
	if len(w.extras) == 0 {
		return
	}
	slices.Sort(w.extras) // several may be written differently and mean the same
	w.user.Extra = make(map[string][]string, len(w.extras))
	for _, name := range w.extras {
		key := authn.ExtraKey(name[len(impersonateExtra):])
		w.user.Extra[key] = append(w.user.Extra[key], w.header[name]...)
	}
}

// name is the permission to be seen as somebody of the user's name.
func (w *wanted) name() *authz.Attributes {
	if namespace, name, ok := satoken.SplitUsername(w.user.Name); ok {
		return &authz.Attributes{Version: "v1", ResourceName: "serviceaccounts", Namespace: namespace, Name: name}
	}
	return &authz.Attributes{Version: "v1", ResourceName: "users", Name: w.user.Name}
}

// parts are the permissions that it takes besides: in the order groups, extra, uid.
func (w *wanted) parts() iter.Seq[*authz.Attributes] {
	return func(yield func(*authz.Attributes) bool) {
		u := w.user
		for _, g := range u.Groups {
			if !yield(&authz.Attributes{Version: "v1", ResourceName: "groups", Name: g}) {
				return
			}
		}
		w.readExtra()
		for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
			for _, v := range u.Extra[k] {
				if !yield(&authz.Attributes{Group: authenticationGroup, Version: "v1", ResourceName: "userextras", Subresource: k, Name: v}) {
					return
				}
			}
		}
		if u.UID != "" {
			yield(&authz.Attributes{Group: authenticationGroup, Version: "v1", ResourceName: "uids", Name: u.UID})
		}
	}
}

// complete adds the groups that go with the user's name.
func complete(u *request.User) {
	if namespace, _, ok := satoken.SplitUsername(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = satoken.Groups(namespace)
	}
	group := api.GroupAuthenticated
	if u.Name == api.UserAnonymous {
		group = api.GroupUnauthenticated
	}
	if !u.InGroup(group) && !u.InGroup(api.GroupUnauthenticated) {
		u.Groups = append(u.Groups, group)
	}
}
