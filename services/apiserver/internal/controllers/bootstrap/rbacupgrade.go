package bootstrap

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// Before Kubernetes 1.14, system:discovery granted the permissions that system:public-info-viewer
// grants today.
const (
	discoveryRole  = "system:discovery"
	publicInfoRole = "system:public-info-viewer"
)

// aggregatedRoles returns the roles that were not aggregated in older versions of Kubernetes. It
// maps each of them to the role that contains its rules today.
func aggregatedRoles() map[string]string {
	return map[string]string{
		"admin": "system:aggregate-to-admin",
		"edit":  "system:aggregate-to-edit",
		"view":  "system:aggregate-to-view",
	}
}

// migrate preserves changes that an administrator made to the roles and bindings of an older
// version. If the successor of such an object does not exist, migrate creates it from the stored
// object.
func (b *Bootstrap) migrate(ctx context.Context, target *policyObjects) error {
	for from, to := range aggregatedRoles() {
		if err := b.migrateRules(ctx, from, to); err != nil {
			return err
		}
	}
	for _, o := range target.ClusterRoleBindings {
		if o.Name == publicInfoRole {
			return b.migrateSubjects(ctx, o)
		}
	}
	return nil
}

// migrateRules creates the role named to with the rules of the role named from, unless from is
// already aggregated.
func (b *Bootstrap) migrateRules(ctx context.Context, from, to string) error {
	roles := policyPath(&rbacv1.ClusterRole{})
	var source rbacv1.ClusterRole
	found, err := b.lacksSuccessor(ctx, roles, from, to, &source)
	if err != nil || !found || source.AggregationRule != nil {
		return err
	}
	return b.createOnce(ctx, roles, &rbacv1.ClusterRole{ObjectMeta: successorMeta(&source.ObjectMeta, to), Rules: source.Rules})
}

// migrateSubjects creates the binding target with the subjects of the binding discoveryRole, which
// granted the same permissions in older versions.
func (b *Bootstrap) migrateSubjects(ctx context.Context, target *rbacv1.ClusterRoleBinding) error {
	bindings := policyPath(target)
	var source rbacv1.ClusterRoleBinding
	found, err := b.lacksSuccessor(ctx, bindings, discoveryRole, target.Name, &source)
	if err != nil || !found {
		return err
	}
	return b.createOnce(ctx, bindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: successorMeta(&source.ObjectMeta, target.Name),
		Subjects:   source.Subjects,
		RoleRef:    target.RoleRef,
	})
}

// lacksSuccessor reports whether the object named from exists and its successor, named to, does
// not. If so, it has read from into source.
func (b *Bootstrap) lacksSuccessor(
	ctx context.Context,
	collection internalclient.Ref,
	from, to string,
	source any,
) (bool, error) {
	if err := b.API.Get(ctx, collection.Named(to), source); !apierrors.IsNotFound(err) {
		return false, err
	}
	if err := b.API.Get(ctx, collection.Named(from), source); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, err
	}
	return true, nil
}

// createOnce creates an object. It does nothing if the object exists.
func (b *Bootstrap) createOnce(ctx context.Context, collection internalclient.Ref, o any) error {
	if err := b.API.Create(ctx, collection, o); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// successorMeta returns the metadata of a successor: its name, and the labels and annotations of
// source.
func successorMeta(source *metav1.ObjectMeta, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: source.Labels, Annotations: source.Annotations}
}
