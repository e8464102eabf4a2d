package authorizer_test

import (
	"testing"

	"binnacle/libs/authorizer"
)

// TestSystemMastersAllowsItsGroupOnly checks that SystemMasters allows everything to members of
// system:masters, and has no opinion on other users.
func TestSystemMastersAllowsItsGroupOnly(t *testing.T) {
	for _, test := range []struct {
		user *authorizer.User
		want authorizer.Decision
	}{
		{user: nil, want: authorizer.NoOpinion},
		{user: &authorizer.User{Name: "system:masters", Groups: []string{"dev"}}, want: authorizer.NoOpinion},
		{user: &authorizer.User{Name: "a", Groups: []string{"dev", "system:masters"}}, want: authorizer.Allow},
	} {
		if d, _, err := (authorizer.SystemMasters{}).Authorize(t.Context(),
			&authorizer.Attributes{User: test.user}); d != test.want || err != nil {
			t.Errorf("%v: got %v, %v, want %v", test.user, d, err, test.want)
		}
	}
}
