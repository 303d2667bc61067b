package main

import "testing"

// Each step is where the table says, once: a change of the code brings the table along.
func TestStepsAreThere(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.source("../.."); err != nil {
			t.Errorf("%s: %v", m.step, err)
		}
	}
}
