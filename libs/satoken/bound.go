package satoken

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authenticator"
)

// authenticateBound checks a token of TokenRequest: its times, and that its account and the bound
// objects are unchanged.
func (a *Authenticator) authenticateBound(ctx context.Context, claims *Claims) (*authenticator.Response, error) {
	now, binding := a.Now(), claims.Binding
	switch {
	case binding == nil || binding.Namespace == "" || binding.ServiceAccount.Name == "" || binding.ServiceAccount.UID == "":
		return nil, errors.New("service account token names no service account")
	case claims.ExpiresAt == nil:
		return nil, errors.New("service account token does not expire")
	case claims.Subject != Username(binding.Namespace, binding.ServiceAccount.Name):
		return nil, errors.New("service account token's subject is not its service account")
	}
	if err := a.checkTimes(claims, now); err != nil {
		return nil, err
	}
	until := claims.ExpiresAt.Add(Leeway)
	if err := a.checkObjects(ctx, binding, now, &until); err != nil {
		return nil, err
	}
	resp := &authenticator.Response{User: binding.userFor(claims.ID), Expires: until}
	use := UseValid
	if binding.WarnAfter != nil && now.After(binding.WarnAfter.Time) {
		use = UseStale
		resp.AuditAnnotations = map[string]string{staleToken: fmt.Sprintf("subject: %s, seconds after warning threshold: %d", claims.Subject, int64(now.Sub(binding.WarnAfter.Time).Seconds()))}
	}
	a.Observe(use)
	return resp, nil
}

// checkObjects returns an error unless the account and the bound objects exist with the uids of the
// token. It reduces until to the time when the first of them counts as deleted.
func (a *Authenticator) checkObjects(ctx context.Context, binding *Binding, now time.Time, until *time.Time) error {
	check := func(kind string, ref Ref, object metav1.Object, err error) error { // err is the error of the lookup
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %q of the token does not exist", kind, ref.Name)
		}
		if err != nil {
			return authenticator.Unavailable(fmt.Errorf("look up %s %q of the token: %w", kind, ref.Name, err))
		}
		if string(object.GetUID()) != ref.UID {
			return fmt.Errorf("%s UID (%s) does not match claim (%s)", kind, object.GetUID(), ref.UID)
		}
		if d := object.GetDeletionTimestamp(); d != nil {
			deletedAt := d.Add(Leeway)
			if now.After(deletedAt) {
				return fmt.Errorf("%s %q of the token has been deleted", kind, ref.Name)
			}
			if deletedAt.Before(*until) {
				*until = deletedAt
			}
		}
		return nil
	}
	sa, err := a.Objects.ServiceAccount(ctx, binding.Namespace, binding.ServiceAccount.Name)
	if err := check("service account", binding.ServiceAccount, sa, err); err != nil {
		return err
	}
	if binding.Secret != nil {
		secret, err := a.Objects.Secret(ctx, binding.Namespace, binding.Secret.Name)
		if err := check("secret", *binding.Secret, secret, err); err != nil {
			return err
		}
	}
	if binding.Pod != nil {
		pod, err := a.Objects.Pod(ctx, binding.Namespace, binding.Pod.Name)
		return check("pod", *binding.Pod, pod, err)
	}
	if binding.Node != nil { // for a token bound to a pod, the node is informational and not checked
		node, err := a.Objects.Node(ctx, binding.Node.Name)
		return check("node", *binding.Node, node, err)
	}
	return nil
}

// userFor returns the user of a token with the binding b and a token id.
func (b *Binding) userFor(id string) authenticator.User {
	extra := map[string][]string{}
	add := func(key, value string) {
		if value != "" {
			extra[key] = []string{value}
		}
	}
	if id != "" {
		add(authenticator.ExtraCredentialID, authenticator.TokenID(id))
	}
	if b.Pod != nil {
		add(ExtraPodName, b.Pod.Name)
		add(ExtraPodUID, b.Pod.UID)
	}
	if b.Node != nil {
		add(ExtraNodeName, b.Node.Name)
		add(ExtraNodeUID, b.Node.UID)
	}
	if len(extra) == 0 {
		extra = nil
	}
	return authenticator.User{
		Name: Username(b.Namespace, b.ServiceAccount.Name), UID: b.ServiceAccount.UID, Groups: Groups(b.Namespace), Extra: extra,
	}
}
