// Package storagemigration declares the kind of the group storagemigration.k8s.io, v1alpha1, which
// is off by default. It has no state. Kinds returns new values for the catalog of built-in kinds.
package storagemigration

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1alpha1 "k8s.io/api/storagemigration/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind { return []*registry.Kind{storageVersionMigrations()} }

// storageVersionMigrations declares the cluster-scoped kind StorageVersionMigration.
func storageVersionMigrations() *registry.Kind {
	return declare.Kind[storagemigrationv1alpha1.StorageVersionMigration, storagemigrationv1alpha1.StorageVersionMigrationList](&registry.Kind{
		Names: registry.Names{
			Group: storagemigrationv1alpha1.GroupName, Version: "v1alpha1", Resource: "storageversionmigrations",
			Kind: "StorageVersionMigration",
		},
		Gate: features.StorageVersionMigrator,
		Parts: declare.SpecStatusAccessors(func(m *storagemigrationv1alpha1.StorageVersionMigration) (*storagemigrationv1alpha1.StorageVersionMigrationSpec, *storagemigrationv1alpha1.StorageVersionMigrationStatus) {
			return &m.Spec, &m.Status
		}),
		Create: registry.Create{Validate: declare.AdaptValidation(validateMigration)},
		Update: registry.Update{
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, m, old *storagemigrationv1alpha1.StorageVersionMigration) {
				validateMigration(fld, m)
				// As in Kubernetes, these paths do not exist in the object.
				fld.CheckImmutable("group", m.Spec.Resource.Group, old.Spec.Resource.Group)
				fld.CheckImmutable("version", m.Spec.Resource.Version, old.Spec.Resource.Version)
				fld.CheckImmutable("resource", m.Spec.Resource.Resource, old.Spec.Resource.Resource)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.New(
				"Name",
				"string",
				"",
				columns.Doc(metav1.ObjectMeta{}, "name"),
				0,
				func(m *storagemigrationv1alpha1.StorageVersionMigration) any { return m.Name },
			),
			columns.Text(
				"Resource",
				"Fully qualified resource to migrate",
				func(m *storagemigrationv1alpha1.StorageVersionMigration) string {
					r := &m.Spec.Resource
					return r.Resource + "." + r.Version + "." + r.Group
				},
			),
		}},
		Subresources: []registry.Subresource{
			declare.WithResetFields(
				declare.ValidatedView(
					"status",
					"StorageVersionMigration",
					func(m, old *storagemigrationv1alpha1.StorageVersionMigration) {
						m.Spec = old.Spec
						declare.ResetMetaForStatus(m, old)
					},
					validateProgress,
				),
				"metadata",
				"spec",
			),
		},
	})
}

func validateMigration(fld validate.Field, m *storagemigrationv1alpha1.StorageVersionMigration) {
	resource := fld.Child("spec", "resource")
	resource.RequireSetWithDetail("resource", m.Spec.Resource.Resource != "", "resource is required")
	resource.RequireSetWithDetail("version", m.Spec.Resource.Version != "", "version is required")
}

// validateProgress validates the progress of a migration. A finished migration stays finished.
func validateProgress(fld validate.Field, migration, old *storagemigrationv1alpha1.StorageVersionMigration) {
	status := fld.Child("status")
	newVersion := migration.Status.ResourceVersion
	oldVersion := old.Status.ResourceVersion
	if newVersion != "" {
		n, err := strconv.ParseInt(newVersion, 10, 64)
		if err != nil {
			status.Invalid("resourceVersion", newVersion, fmt.Sprintf("failed to parse resource version %q: %v", newVersion, err))
		}
		status.CheckNonNegative("resourceVersion", n)
	}
	validateConditions(status.Child("conditions"), migration.Status.Conditions)
	if oldVersion != "" && newVersion != oldVersion {
		status.Invalid("resourceVersion", newVersion, "resourceVersion cannot be updated")
	}
	isConditionTrue := func(m *storagemigrationv1alpha1.StorageVersionMigration, conditionType storagemigrationv1alpha1.MigrationConditionType) bool {
		for i := range m.Status.Conditions {
			if c := &m.Status.Conditions[i]; c.Type == conditionType {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}
	const running, succeeded, failed = storagemigrationv1alpha1.MigrationRunning, storagemigrationv1alpha1.MigrationSucceeded, storagemigrationv1alpha1.MigrationFailed
	reject := func(wrong bool, reason string) {
		if wrong {
			status.Invalid("conditions", migration.Status.Conditions, reason)
		}
	}
	reject(isConditionTrue(migration, succeeded) && isConditionTrue(migration, failed), "Both success and failed conditions cannot be true at the same time")
	reject(isConditionTrue(migration, succeeded) && isConditionTrue(migration, running), "Running condition cannot be true when success condition is true")
	reject(isConditionTrue(migration, failed) && isConditionTrue(migration, running), "Running condition cannot be true when failed condition is true")
	reject(isConditionTrue(old, succeeded) && !isConditionTrue(migration, succeeded), "Success condition cannot be set to false once it is true")
	reject(isConditionTrue(old, failed) && !isConditionTrue(migration, failed), "Failed condition cannot be set to false once it is true")
}

// validateConditions applies the rules for metav1.Condition to migration conditions. The time field
// of a migration condition is LastUpdateTime instead of LastTransitionTime.
func validateConditions(fld validate.Field, conditions []storagemigrationv1alpha1.MigrationCondition) {
	seen := validate.Set[storagemigrationv1alpha1.MigrationConditionType]{}
	for i := range conditions {
		migrationCondition, each := &conditions[i], fld.Index("", i)
		if !seen.Add(migrationCondition.Type) {
			each.Duplicate("type", migrationCondition.Type)
		}
		one := []metav1.Condition{{
			Type:               string(migrationCondition.Type),
			Status:             metav1.ConditionStatus(migrationCondition.Status),
			LastTransitionTime: migrationCondition.LastUpdateTime,
			Reason:             migrationCondition.Reason,
			Message:            migrationCondition.Message,
		}}
		for _, err := range validate.Check(func(fld validate.Field) { fld.CheckConditions("c", one) }) {
			err.Field = each.FieldPath().String() + strings.TrimPrefix(err.Field, "c[0]")
			each.Add(err)
		}
	}
}
