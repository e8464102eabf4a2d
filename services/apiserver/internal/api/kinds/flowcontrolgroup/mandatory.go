package flowcontrolgroup

import flowcontrolv1 "k8s.io/api/flowcontrol/v1"

// mandatorySchema returns the spec of the mandatory flow schema with a name, or nil for any other
// name.
func mandatorySchema(name string) *flowcontrolv1.FlowSchemaSpec {
	const all = flowcontrolv1.ResourceAll
	// allRequestsOf returns rules that match every request of members of the groups.
	allRequestsOf := func(groups ...string) []flowcontrolv1.PolicyRulesWithSubjects {
		rules := flowcontrolv1.PolicyRulesWithSubjects{
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
				Verbs: []string{all}, APIGroups: []string{all}, Resources: []string{all}, ClusterScope: true, Namespaces: []string{all},
			}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{all}, NonResourceURLs: []string{all}}},
		}
		for _, g := range groups {
			rules.Subjects = append(rules.Subjects, flowcontrolv1.Subject{
				Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: g},
			})
		}
		return []flowcontrolv1.PolicyRulesWithSubjects{rules}
	}
	switch name {
	case flowcontrolv1.FlowSchemaNameExempt:
		return &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{
				Name: flowcontrolv1.PriorityLevelConfigurationNameExempt,
			},
			MatchingPrecedence: exemptPrecedence,
			Rules:              allRequestsOf("system:masters"),
		}
	case flowcontrolv1.FlowSchemaNameCatchAll:
		return &flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{
				Name: flowcontrolv1.PriorityLevelConfigurationNameCatchAll,
			},
			MatchingPrecedence:  flowcontrolv1.FlowSchemaMaxMatchingPrecedence,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules:               allRequestsOf("system:unauthenticated", "system:authenticated"),
		}
	}
	return nil
}

// mandatoryLevelSpec returns the spec of the mandatory priority level with a name, or nil for any
// other name.
func mandatoryLevelSpec(name string) *flowcontrolv1.PriorityLevelConfigurationSpec {
	switch name {
	case flowcontrolv1.PriorityLevelConfigurationNameExempt:
		return &flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: new(int32), LendablePercent: new(int32)},
		}
	case flowcontrolv1.PriorityLevelConfigurationNameCatchAll:
		shares := int32(5)
		return &flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares,
				LendablePercent:          new(int32),
				LimitResponse:            flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		}
	}
	return nil
}
