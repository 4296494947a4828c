import './base.css';
import '../../jupyter_sky/widgets/static/base.css';
import '../../jupyter_sky/widgets/static/cost.css';
import '../../jupyter_sky/widgets/static/card.css';
import '../../jupyter_sky/widgets/static/logs.css';
import './runs.css';
import '../../jupyter_sky/widgets/static/form.css';
import './form.css';
