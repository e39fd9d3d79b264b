# Flip-flops are named by the bits they hold; their outputs switch as those did
# in the simulation. OpenSTA 2.0.17 gives a flip-flop's output the activity of
# its data pin, and takes none at the output itself.
set_power_activity -input -activity 0.1
set file [open RATES]
while {[gets $file line] >= 0} { lassign $line path bit rate; set rates($path/$bit) $rate }
close $file
set known 0
set all 0
foreach cell [get_cells -hierarchical *DFF*] {
  incr all
  set name [string map {\\ {}} [get_full_name $cell]]
  regsub {\$_.*$} $name {} name
  set bit 0
  regexp {^(.*)\[([0-9]+)\]$} $name whole name bit
  set name [string map {. /} $name]
  if {[info exists rates($name/$bit)]} {
    incr known
    foreach pin [get_pins -of_objects $cell] {
      if {[string match */D [get_full_name $pin]]} { sta::set_power_pin_activity $pin $rates($name/$bit) 0.5 }
    }
  }
}
foreach cell [get_cells -hierarchical {MEMORIES}] {
  foreach pin [get_pins -of_objects $cell] {
    set name [string map {\\ {}} [get_full_name $pin]]
    if {[regexp {^(.*/rdata)\[([0-9]+)\]$} $name whole name bit]} {
      set name [string map {. /} $name]
      if {[info exists rates($name/$bit)]} { sta::set_power_pin_activity $pin $rates($name/$bit) 0.5 }
    }
  }
}
puts "annotated [expr double($known) / $all]"
report_checks -digits 1
report_worst_slack
report_power
