package apply

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/merge"
)

// maxConflictBytes is the size in bytes after which no more conflicts are formatted. The response has a
// lower limit.
const maxConflictBytes = 1 << 20

// conflictError returns the 409 of an apply: a cause for each field, and the text that clients
// match.
func conflictError(conflicts merge.Conflicts) error {
	// The fields of each manager keep the order of their set.
	slices.SortStableFunc(conflicts, func(a, b merge.Conflict) int { return strings.Compare(a.Manager, b.Manager) })
	var causes []metav1.StatusCause
	var lines []string
	size := 0
	for i, c := range conflicts {
		manager, path := ownerOf(c.Manager).String(), c.Path.String()
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + manager, Field: path,
		})
		if i == 0 || conflicts[i-1].Manager != c.Manager {
			lines = append(lines, fmt.Sprintf("conflicts with %s:", manager))
		}
		lines = append(lines, "- "+path)
		if size += len(manager) + len(path); size > maxConflictBytes && i+1 < len(conflicts) {
			lines = append(lines, fmt.Sprintf("and %d more", len(conflicts)-i-1))
			break
		}
	}
	message := fmt.Sprintf("Apply failed with %d conflicts: %s", len(conflicts), strings.Join(lines, "\n"))
	if len(conflicts) == 1 {
		message = fmt.Sprintf("Apply failed with 1 conflict: %s: %s", causes[0].Message, causes[0].Field)
	}
	return apierrors.NewApplyConflict(causes, message)
}

// String returns the owner as conflict messages name it.
func (o owner) String() string {
	s := fmt.Sprintf("%q", o.Manager)
	if o.Subresource != "" {
		s += fmt.Sprintf(" with subresource %q", o.Subresource)
	}
	if !o.applied() {
		s += " using " + o.APIVersion
	}
	return s
}
